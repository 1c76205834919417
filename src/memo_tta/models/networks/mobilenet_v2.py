"""MobileNetV2 for ImageNet, with torchvision's state-dict keys."""

from torch import Tensor, nn

# expansion, outputs, blocks, stride of the first block (table 2 of the MobileNetV2 paper)
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, HEAD = 32, 1280


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """1 x 1 expansion, 3 x 3 depthwise convolution, linear projection; a shortcut if shapes match."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int):
        super().__init__()
        inner = inputs * expansion
        expand = [] if expansion == 1 else [_conv_norm(inputs, inner, 1)]
        self.conv = nn.Sequential(
            *expand,
            _conv_norm(inner, inner, 3, stride, groups=inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return x + y if self.has_shortcut else y


class MobileNetV2(nn.Module):
    """Stem, inverted residuals, 1 x 1 convolution, average pooling, linear head."""

    def __init__(self, num_classes: int = 1000):
        super().__init__()
        layers: list[nn.Module] = [_conv_norm(3, STEM, 3, stride=2)]
        inputs = STEM
        for expansion, outputs, depth, stride in STAGES:
            for index in range(depth):
                layers.append(InvertedResidual(inputs, outputs, stride if index == 0 else 1, expansion))
                inputs = outputs
        self.features = nn.Sequential(*layers, _conv_norm(inputs, HEAD, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(HEAD, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean(dim=(2, 3)))


def mobilenet_v2(num_classes: int = 1000) -> MobileNetV2:
    return MobileNetV2(num_classes)
