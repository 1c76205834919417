"""The paper's CIFAR-10 model: a pre-activation ResNet-26 with group norm, 366,938 parameters."""

import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 8  # of each group norm


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class Shortcut(nn.Module):
    """Parameter-free shortcut: average pooling over the stride, zeros for the added channels."""

    def __init__(self, new_channels: int, stride: int):
        super().__init__()
        self.new_channels, self.stride = new_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            x = F.avg_pool2d(x, self.stride)
        return F.pad(x, (0, 0, 0, 0, 0, self.new_channels)) if self.new_channels else x


class PreActivationBlock(nn.Module):
    """Norm, ReLU and 3 x 3 convolution, twice; the shortcut starts before the first norm."""

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
    """Three stages of four blocks, for 32 x 32 images."""

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.conv1 = _conv3x3(3, 16)
        self.layer1 = make_stage(16, 16, stride=1)
        self.layer2 = make_stage(16, 32, stride=2)
        self.layer3 = make_stage(32, 64, stride=2)
        self.bn = nn.GroupNorm(GROUPS, 64)
        self.fc = nn.Linear(64, num_classes)

    def trunk(self, x: Tensor) -> Tensor:
        """Return the features before the last stage."""
        return self.layer2(self.layer1(self.conv1(x)))

    def branch(self, trunk: Tensor) -> Tensor:
        """Return the logits from the features of `trunk`."""
        x = F.relu(self.bn(self.layer3(trunk)), inplace=True)
        return self.fc(x.mean(dim=(2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(self.trunk(x))


def make_stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Return four blocks; the first one has the stride."""
    rest = (PreActivationBlock(outputs, outputs, 1) for _ in range(3))
    return nn.Sequential(PreActivationBlock(inputs, outputs, stride), *rest)
