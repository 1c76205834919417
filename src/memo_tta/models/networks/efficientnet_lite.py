"""EfficientNet-Lite for ImageNet, with the state-dict keys of efficientnet_lite_pytorch.

Lite0, 1 and 2 were trained on 224, 240 and 260 pixels, with mean = std = 0.5.
"""

from math import ceil

import torch.nn.functional as F
from torch import Tensor, nn

# expansion, kernel, outputs, blocks, stride of the first block
STAGES = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)
STEM, HEAD = 32, 1280
NORM_EPS = 1e-3


class SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's "same" padding: an odd pixel goes to the right and below."""

    def forward(self, input: Tensor) -> Tensor:
        height, width = input.shape[2:]
        return super().forward(F.pad(input, (*self._padding(width), *self._padding(height))))

    def _padding(self, size: int) -> tuple[int, int]:
        kernel, stride = self.kernel_size[0], self.stride[0]
        total = kernel - (size % stride or stride)
        return total // 2, total - total // 2


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    if stride == 1:
        return nn.Conv2d(inputs, outputs, kernel, padding="same", groups=groups, bias=False)
    return SameConv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=NORM_EPS)


class MBConvBlock(nn.Module):
    """1 x 1 expansion, depthwise convolution, linear projection; a shortcut if shapes match."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        inner = inputs * expansion
        self.has_expansion = expansion > 1
        if self.has_expansion:
            self._expand_conv = _conv(inputs, inner, 1)
            self._bn0 = _norm(inner)
        self._depthwise_conv = _conv(inner, inner, kernel, stride, groups=inner)
        self._bn1 = _norm(inner)
        self._project_conv = _conv(inner, outputs, 1)
        self._bn2 = _norm(outputs)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self._bn0(self._expand_conv(x)), inplace=True) if self.has_expansion else x
        y = F.relu6(self._bn1(self._depthwise_conv(y)), inplace=True)
        y = self._bn2(self._project_conv(y))
        return x + y if self.has_shortcut else y


class EfficientNetLite(nn.Module):
    """Stem, MBConv blocks without squeeze-and-excitation, 1 x 1 convolution, average pooling, linear head."""

    def __init__(self, width: float, depth: float, num_classes: int = 1000):
        super().__init__()
        self._conv_stem = _conv(3, STEM, 3, stride=2)
        self._bn0 = _norm(STEM)
        blocks = _blocks(width, depth)
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = _conv(blocks[-1]._project_conv.out_channels, HEAD, 1)
        self._bn1 = _norm(HEAD)
        self._fc = nn.Linear(HEAD, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self._blocks(F.relu6(self._bn0(self._conv_stem(x)), inplace=True))
        x = F.relu6(self._bn1(self._conv_head(x)), inplace=True)
        return self._fc(x.mean(dim=(2, 3)))


def _blocks(width: float, depth: float) -> list[MBConvBlock]:
    """Scale the width of every stage, and the depth of all but the first and the last."""
    blocks, inputs = [], STEM
    for stage in STAGES:
        expansion, kernel, base, repeats, stride = stage
        outputs = _multiple_of_8(base * width)
        if stage not in (STAGES[0], STAGES[-1]):
            repeats = ceil(repeats * depth)
        for index in range(repeats):
            blocks.append(MBConvBlock(inputs, outputs, kernel, stride if index == 0 else 1, expansion))
            inputs = outputs
    return blocks


def _multiple_of_8(channels: float) -> int:
    return int(channels + 4) // 8 * 8


def efficientnet_lite0(num_classes: int = 1000) -> EfficientNetLite:
    return EfficientNetLite(1.0, 1.0, num_classes)


def efficientnet_lite1(num_classes: int = 1000) -> EfficientNetLite:
    return EfficientNetLite(1.0, 1.1, num_classes)


def efficientnet_lite2(num_classes: int = 1000) -> EfficientNetLite:
    return EfficientNetLite(1.1, 1.2, num_classes)
