"""The rotation task that test-time training adds to the main one."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.models.networks.resnet26_joint import TURNS, JointResNet26, turn


def with_turned(images: Tensor, labels: Tensor, rng: np.random.Generator) -> tuple[Tensor, ...]:
    """The batch, its images turned by right angles drawn at random, and how many those were."""
    turns = torch.from_numpy(rng.integers(TURNS, size=len(images)))
    return images, labels, turn(images, turns), turns


def joint_loss(
    model: JointResNet26, images: Tensor, labels: Tensor, turned: Tensor, turns: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss of both tasks together; how many classes were right."""
    logits, turn_logits = model.both_logits(images, turned)
    loss = F.cross_entropy(logits, labels) + F.cross_entropy(turn_logits, turns)
    return loss, (logits.argmax(1) == labels).sum()
