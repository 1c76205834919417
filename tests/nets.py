"""Small classifiers of every kind that adaptation must work with."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import memo_tta as mt
from memo_tta.methods.view_method import ViewMethod
from memo_tta.models.networks.resnet26_joint import JointResNet26

SIZE, CLASSES = 8, 5


class GroupNormNet(nn.Sequential):
    """Group norm, whose statistics need no batch."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.GroupNorm(4, 8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(72, CLASSES),
        )


class BatchNormNet(nn.Sequential):
    """Batch norm in one and two dimensions."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(72, 12),
            nn.BatchNorm1d(12),
            nn.ReLU(),
            nn.Linear(12, CLASSES),
        )


class Transformer(nn.Module):
    """Layer norm, packed attention projections, class token and position embedding."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.class_token = nn.Parameter(torch.randn(1, 1, 16))
        self.positions = nn.Parameter(torch.randn(1, 5, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.3, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), tokens], dim=1) + self.positions
        return self.head(self.norm(self.block(tokens)[:, 0]))


class PlainNet(nn.Sequential):
    """No norm layer."""

    def __init__(self):
        super().__init__(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(54, CLASSES))


class DropoutNet(nn.Sequential):
    """Dropout everywhere, and a batch-norm layer that was left in training mode."""

    def __init__(self):
        super().__init__(
            nn.Dropout2d(0.4),
            nn.Conv2d(3, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(72, CLASSES),
        )


class BufferNet(nn.Module):
    """Buffers that change at every forward pass: in place, replaced, created on first use."""

    calls: Tensor
    average: Tensor
    last: Tensor | None

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.norm = nn.GroupNorm(2, 8)
        self.head = nn.Linear(72, CLASSES)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(8))
        self.register_buffer("last", None)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x)
        self.calls += 1
        self.average = 0.9 * self.average + 0.1
        self.last = h.detach()
        return self.head(self.norm(h - self.average[:, None, None]).relu().flatten(1))


class Bfloat16Net(BatchNormNet):
    """Store the weights in bfloat16."""

    def __init__(self):
        super().__init__()
        self.bfloat16()


class RotationNet(JointResNet26):
    """ResNet-26 with a rotation head."""

    def __init__(self):
        super().__init__(CLASSES)


NETS: dict[str, Callable[[], nn.Module]] = {
    "group-norm": GroupNormNet,
    "batch-norm": BatchNormNet,
    "transformer": Transformer,
    "no-norm": PlainNet,
    "dropout": DropoutNet,
    "buffers": BufferNet,
    "bfloat16": Bfloat16Net,
    "rotation": RotationNet,
}


def build_classifier(net: str, seed: int = 0, **settings: Any) -> mt.Classifier:
    """Return a classifier with random weights, statistics and gradients, and mixed `requires_grad` flags."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = NETS[net]()
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0, 0.3)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2)
        module.train()  # the mode that adaptation must restore
        for index, parameter in enumerate(module.parameters()):
            parameter.requires_grad = index % 3 != 0
            parameter.grad = torch.randn_like(parameter) if index % 2 else None
    return mt.Classifier(
        module, size=SIZE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), labels=list("abcde"), settings=settings
    )


def view_method(name: str, classifier: mt.Classifier, **options: Any) -> ViewMethod[Any]:
    """Build a method that uses views."""
    method = mt.method(name, classifier, **options)
    assert isinstance(method, ViewMethod)
    return method


def last_linear(classifier: mt.Classifier) -> nn.Linear:
    """Return the last linear layer of the module."""
    return [m for m in classifier.module.modules() if isinstance(m, nn.Linear)][-1]


def everything(module: nn.Module) -> list[object]:
    """Return all that must be restored, in a form that compares exactly."""
    state: list[object] = [(name, _bits(value)) for name, value in module.state_dict().items()]
    state += [(name, id(buffer)) for name, buffer in module.named_buffers()]
    state += [(name, m.training, len(m._forward_pre_hooks)) for name, m in module.named_modules()]
    state += [(p.requires_grad, None if p.grad is None else _bits(p.grad)) for p in module.parameters()]
    return state


def _bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def pictures(n: int, seed: int = 0) -> list[np.ndarray]:
    """Return n random uint8 images."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8) for _ in range(n)]


LARGE = 96  # pixels: images of more than 64 are treated as large


def large_classifier() -> mt.Classifier:
    """Return a random network for large images, with two batch-norm layers of which the first counts."""
    torch.manual_seed(0)
    norms = [nn.BatchNorm2d(channels) for channels in (4, 6)]
    layers = (nn.Conv2d(3, 4, 3, stride=4), norms[0], nn.ReLU(), nn.Conv2d(4, 6, 3, stride=2), norms[1])
    module = nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)).eval()
    for norm in norms:
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.uniform_(-0.5, 0.5)
        norm.running_var.uniform_(0.5, 2)
    return mt.Classifier(module, size=LARGE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))


def large_image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (LARGE, LARGE, 3), dtype=np.uint8)
