"""ResNet-26 with a second head that predicts an image's rotation (TTT, Sun et al., 2020)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from memo_tta.models.networks.resnet26 import GROUPS, ResNet26, make_stage

TURNS = 4  # rotations by 0, 90, 180 and 270 degrees


class RotationBranch(nn.Module):
    """Last stage and four-way head of the rotation task."""

    def __init__(self):
        super().__init__()
        self.layer3 = make_stage(32, 64, stride=2)
        self.bn = nn.GroupNorm(GROUPS, 64)
        self.fc = nn.Linear(64, TURNS)

    def forward(self, trunk: Tensor) -> Tensor:
        x = F.relu(self.bn(self.layer3(trunk)), inplace=True)
        return self.fc(x.mean(dim=(2, 3)))


class JointResNet26(ResNet26):
    """ResNet-26 for classes and rotations; both tasks share everything up to the last stage."""

    def __init__(self, num_classes: int = 10):
        super().__init__(num_classes)
        self.rotation = RotationBranch()

    def rotation_logits(self, x: Tensor) -> Tensor:
        """Return logits [N, 4] for rotations by 0, 90, 180 and 270 degrees."""
        return self.rotation(self.trunk(x))

    def both_logits(self, x: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits of x and rotation logits of `turned`, with one pass through the trunk."""
        trunk = self.trunk(torch.cat([x, turned]))
        return self.branch(trunk[: len(x)]), self.rotation(trunk[len(x) :])


def turn(images: Tensor, turns: Tensor) -> Tensor:
    """Rotate each square image (n, 3, s, s) counter-clockwise by its number of right angles."""
    turned = images.clone()
    for count in range(1, TURNS):
        chosen = turns == count
        turned[chosen] = torch.rot90(images[chosen], count, dims=(2, 3))
    return turned
