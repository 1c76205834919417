"""The rotation task that test-time training adds to the main one."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.models.rotation import TURNS, JointResNet26, turn


def joint_pass(model: JointResNet26, images: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Class logits, and the loss of telling by how many right angles, drawn at random, images were turned."""
    turns = torch.from_numpy(rng.integers(TURNS, size=len(images)))
    logits, turn_logits = model.both_logits(images, turn(images, turns))
    return logits, F.cross_entropy(turn_logits, turns)
