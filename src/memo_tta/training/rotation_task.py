"""The self-supervised task of test-time training: predict an image's rotation."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.models.networks.resnet26_joint import TURNS, JointResNet26, turn


def with_turned(images: Tensor, targets: Tensor, rng: np.random.Generator) -> tuple[Tensor, ...]:
    """Return images, targets, images rotated by random right angles, and the number of right angles."""
    turns = torch.from_numpy(rng.integers(TURNS, size=len(images)))
    return images, targets, turn(images, turns), turns


def joint_loss(
    model: JointResNet26,
    images: Tensor,
    targets: Tensor,
    turned: Tensor,
    turns: Tensor,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return the summed loss of both tasks, and the number of correct classes."""
    logits, turn_logits = model.both_logits(images, turned)
    main = F.cross_entropy(logits, targets, label_smoothing=label_smoothing)
    loss = main + F.cross_entropy(turn_logits, turns)
    return loss, (logits.argmax(1) == targets).sum()
