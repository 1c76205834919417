"""The models that have a name: definition, preprocessing, labels and the paper's MEMO settings."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from memo_tta.class_lists import class_list
from memo_tta.errors import CheckpointError
from memo_tta.models.checkpoint import load_weights
from memo_tta.models.classifier import Classifier
from memo_tta.models.resnet import resnet18, resnet50
from memo_tta.models.resnet_cifar import ResNet26
from memo_tta.models.rotation import JointResNet26
from memo_tta.registry import Registry


@dataclass(frozen=True)
class ZooEntry:
    """A model is data: how to build it, and what its weights were trained with."""

    about: str
    build: Callable[[], nn.Module]
    classes: str  # the name of its class list
    preprocessing: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)


SHIPPED = Path(__file__).parent / "weights"
CIFAR = {"size": 32, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
IMAGENET = {"size": 224, "resize": 256, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
imagenet_resnet = partial(ZooEntry, classes="imagenet", preprocessing=IMAGENET)
CIFAR_SETTINGS = {"optimizer": "sgd", "lr": 0.005, "n_views": 32, "prior_strength": None}
RESNET_SETTINGS = {"optimizer": "sgd", "lr": 0.00025, "n_views": 64, "prior_strength": 16}

ZOO = Registry(
    "model",
    {
        "resnet26": ZooEntry(
            "ResNet-26 with group norm, CIFAR-10 (the paper's)",
            ResNet26,
            "cifar10",
            CIFAR,
            CIFAR_SETTINGS,
        ),
        "resnet26-joint": ZooEntry(
            "the same with TTT's rotation head",
            JointResNet26,
            "cifar10",
            CIFAR,
            CIFAR_SETTINGS,
        ),
        "resnet18": imagenet_resnet(
            "ResNet-18, ImageNet, torchvision's keys", resnet18, settings=RESNET_SETTINGS
        ),
        "resnet50": imagenet_resnet(
            "ResNet-50, ImageNet, torchvision's keys", resnet50, settings=RESNET_SETTINGS
        ),
    },
)


def shipped_weights(spec: str) -> Path | None:
    """The weights that come along with a model, if any do."""
    path = SHIPPED / f"{spec}.safetensors"
    return path if path.is_file() else None


def shipped_error(spec: str) -> float | None:
    """Error % of the shipped weights on the test images, as `memo train` measured it."""
    path = SHIPPED / f"{spec}.json"
    return json.loads(path.read_text("utf-8"))["test_error"] if path.is_file() else None


def load(spec: str, weights: str | Path | None = None) -> Classifier:
    """The classifier of a zoo name, with its own weights or those of a .safetensors, .pth or .npz file."""
    entry = ZOO[spec]
    weights = weights or shipped_weights(spec)
    if weights is None:
        raise CheckpointError(
            f"{spec}: comes without weights: name a file, weights=PATH or --weights PATH "
            "(.safetensors, .pth or .npz)"
        )
    module = entry.build()
    load_weights(module, weights)
    return Classifier(
        module.eval(), labels=class_list(entry.classes), settings=entry.settings, **entry.preprocessing
    )
