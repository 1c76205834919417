"""ResNet-26 with a second head that tells how far an image was turned (TTT, Sun et al., 2020)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from memo_tta.models.networks.resnet26 import GROUPS, ResNet26, block_group

TURNS = 4


class RotationBranch(nn.Module):
    """A last group of blocks of its own, and a four-way head."""

    def __init__(self):
        super().__init__()
        self.layer3 = block_group(32, 64, stride=2)
        self.bn = nn.GroupNorm(GROUPS, 64)
        self.fc = nn.Linear(64, TURNS)

    def forward(self, trunk: Tensor) -> Tensor:
        x = F.relu(self.bn(self.layer3(trunk)), inplace=True)
        return self.fc(x.mean(dim=(2, 3)))


class JointResNet26(ResNet26):
    """Shares everything up to the last group of blocks between the two heads."""

    def __init__(self, num_classes: int = 10):
        super().__init__(num_classes)
        self.rotation = RotationBranch()

    def rotation_logits(self, x: Tensor) -> Tensor:
        """[N, 4]: how likely each image was turned by 0, 90, 180 or 270 degrees."""
        return self.rotation(self.trunk(x))

    def both_logits(self, x: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
        """Class logits of x and rotation logits of `turned`, in one pass through the trunk."""
        trunk = self.trunk(torch.cat([x, turned]))
        return self.branch(trunk[: len(x)]), self.rotation(trunk[len(x) :])


def turn(images: Tensor, turns: Tensor) -> Tensor:
    """Each square image (n, 3, s, s) turned counter-clockwise by its number of right angles."""
    turned = images.clone()
    for count in range(1, TURNS):
        chosen = turns == count
        turned[chosen] = torch.rot90(images[chosen], count, dims=(2, 3))
    return turned
