"""The paper's CIFAR model: a pre-activation ResNet-26 with group norm, 366,938 parameters."""

import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 8


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class Shortcut(nn.Module):
    """The identity without parameters: average over the stride, new channels are zero."""

    def __init__(self, new_channels: int, stride: int):
        super().__init__()
        self.new_channels, self.stride = new_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            x = F.avg_pool2d(x, self.stride)
        return F.pad(x, (0, 0, 0, 0, 0, self.new_channels)) if self.new_channels else x


class Block(nn.Module):
    """Norm, ReLU, convolution, twice; the shortcut starts before the first norm."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.bn1 = nn.GroupNorm(GROUPS, inputs)
        self.conv1 = _conv3x3(inputs, outputs, stride)
        self.bn2 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = _conv3x3(outputs, outputs)
        self.shortcut = Shortcut(outputs - inputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.bn1(x), inplace=True))
        y = self.conv2(F.relu(self.bn2(y), inplace=True))
        return self.shortcut(x) + y


class ResNet26(nn.Module):
    """Three groups of four blocks on 32 x 32 images."""

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.conv1 = _conv3x3(3, 16)
        self.layer1 = block_group(16, 16, stride=1)
        self.layer2 = block_group(16, 32, stride=2)
        self.layer3 = block_group(32, 64, stride=2)
        self.bn = nn.GroupNorm(GROUPS, 64)
        self.fc = nn.Linear(64, num_classes)

    def trunk(self, x: Tensor) -> Tensor:
        """Features before the last group of blocks."""
        return self.layer2(self.layer1(self.conv1(x)))

    def branch(self, trunk: Tensor) -> Tensor:
        """Logits from the trunk's features."""
        x = F.relu(self.bn(self.layer3(trunk)), inplace=True)
        return self.fc(x.mean(dim=(2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(self.trunk(x))


def block_group(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(Block(inputs, outputs, stride), *(Block(outputs, outputs, 1) for _ in range(3)))
