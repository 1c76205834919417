"""ResNet and ResNeXt for ImageNet, with torchvision's state-dict keys."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

RESNET50_DEPTHS = (3, 4, 6, 3)


class BasicBlock(nn.Module):
    """Residual block of two 3 x 3 convolutions (ResNet-18)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _projection(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


class Bottleneck(nn.Module):
    """Residual block of 1 x 1, 3 x 3 and 1 x 1 convolutions; the 3 x 3 has the stride (ResNet-50)."""

    expansion = 4
    groups = 1
    group_width = 64  # channels per group of the 3 x 3 convolution in the first stage
    strides_first = False  # whether the first convolution has the stride

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = width * self.expansion
        inner = width * self.groups * self.group_width // 64
        first, second = (stride, 1) if self.strides_first else (1, stride)
        self.conv1 = nn.Conv2d(inputs, inner, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, second, padding=1, groups=self.groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


class OriginalBottleneck(Bottleneck):
    """Bottleneck as first published, and as Keras has it: the first convolution has the stride."""

    strides_first = True


class Bottleneck32x8(Bottleneck):
    """Bottleneck whose 3 x 3 convolution has 32 groups of 8 channels (ResNeXt-101)."""

    groups = 32
    group_width = 8


def _projection(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """Stem, four stages of blocks, average pooling, linear head."""

    def __init__(self, block: type[BasicBlock | Bottleneck], depths: Sequence[int], num_classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, depths[3], stride=2)
        self.fc = nn.Linear(512 * block.expansion, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def _stage(
    block: type[BasicBlock | Bottleneck], inputs: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    rest = (block(width * block.expansion, width, stride=1) for _ in range(depth - 1))
    return nn.Sequential(block(inputs, width, stride), *rest)


def resnet18(num_classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes)


def resnet50(num_classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, RESNET50_DEPTHS, num_classes)


def resnet50_v1(num_classes: int = 1000) -> ResNet:
    """ResNet-50 as Keras has it (He et al., 2016)."""
    module = ResNet(OriginalBottleneck, RESNET50_DEPTHS, num_classes)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = 1e-3
    return module


def resnext101_32x8d(num_classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck32x8, (3, 4, 23, 3), num_classes)
