"""Models of timm and torchvision, and models that a user's file builds."""

import math
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from memo_tta.class_lists import class_list
from memo_tta.errors import ConfigError, MissingExtra, ModelError
from memo_tta.image import Size
from memo_tta.models.checkpoint import load_weights
from memo_tta.models.classifier import Classifier
from memo_tta.models.labels import Labels, read_labels
from memo_tta.models.preprocessing import replaced
from memo_tta.models.published_weights import downloading
from memo_tta.registry import unknown_name

INSTEAD = "wrap the model in Classifier without size, and preprocess the images yourself"


def from_timm(
    name: str, weights: Path | None = None, num_classes: int | None = None, **given: Any
) -> Classifier:
    """Return a timm model with its own preprocessing; without a weights file, timm downloads the weights."""
    timm = _library("timm")
    data = import_module("timm.data")
    if not timm.is_model(name):
        raise unknown_name("timm model", name, timm.list_models())
    options = {} if num_classes is None else {"num_classes": num_classes}
    published = timm.get_pretrained_cfg(name)
    with _downloading(
        weights, f"timm:{name}", published and published.url, published and published.hf_hub_id
    ):
        module = timm.create_model(name, pretrained=weights is None, **options)
    config = data.resolve_model_data_config(module)
    _, height, width = config["input_size"]
    found = {
        "size": (height, width),
        "resize": _timm_resize(f"timm:{name}", (height, width), config["crop_mode"], config["crop_pct"]),
        "interpolation": config["interpolation"],
        "mean": config["mean"],
        "std": config["std"],
        "labels": class_list("imagenet") if module.num_classes == 1000 else None,
    }
    return _classifier(module, weights, found, given)


def _timm_resize(spec: str, size: tuple[int, int], mode: str, share: float) -> Size | None:
    """Return what timm resizes an image to, before it crops this share of it."""
    height, width = (math.floor(side / share) for side in size)
    if mode == "squash":
        return height, width
    if mode == "center" and height == width:
        return height
    if mode == "center" and share == 1:
        return None
    raise ModelError(
        f"{spec}: expected a square centre crop, a squashed image or a crop of all of it, "
        f"got crop_mode {mode!r} with {share:.0%} to {size[1]} x {size[0]}: {INSTEAD}"
    )


def from_torchvision(
    name: str, weights: Path | None = None, num_classes: int | None = None, **given: Any
) -> Classifier:
    """Return a torchvision model with the preprocessing and labels of its default weights."""
    models = _library("torchvision").models
    if name not in models.list_models(module=models):
        raise unknown_name("torchvision model", name, models.list_models(module=models))
    default = models.get_model_weights(name).DEFAULT
    options = {} if num_classes is None else {"num_classes": num_classes}
    with _downloading(weights, f"torchvision:{name}", default.url):
        module = models.get_model(name, weights=default if weights is None else None, **options)
    preset = default.transforms()
    found = {
        "size": preset.crop_size[0],
        "resize": preset.resize_size[0],
        "interpolation": preset.interpolation.value,
        "mean": preset.mean,
        "std": preset.std,
        "labels": default.meta["categories"] if num_classes is None else None,
    }
    return _classifier(module, weights, found, given)


def from_file(spec: str, weights: Path | None = None, labels: Labels | None = None) -> Classifier:
    """Call a function of the user's file and return its Classifier; `spec` is path/to/file.py:function."""
    path_text, _, function = spec.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise ConfigError(f"{spec}: {path} does not exist")
    build = getattr(_import_file(path), function, None)
    if not callable(build):
        raise ConfigError(f"{spec}: {path} defines no function {function!r}")
    built = build()
    if not isinstance(built, Classifier):
        raise ModelError(
            f"{spec}: expected a memo_tta.Classifier, got {type(built).__name__}: "
            "return memo_tta.Classifier(module, size=..., mean=..., std=...)"
        )
    if weights is not None:
        load_weights(built.module, weights)
    if labels is not None:
        built.labels = read_labels(labels)
    return built


def _import_file(path: Path) -> ModuleType:
    found = spec_from_file_location(f"memo_tta_user_{path.stem}", path)
    assert found is not None and found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _downloading(weights: Path | None, *published: Any) -> AbstractContextManager[None]:
    return nullcontext() if weights is not None else downloading(*published)


def _classifier(
    module: nn.Module, weights: Path | None, found: dict[str, Any], given: dict[str, Any]
) -> Classifier:
    if weights is not None:
        load_weights(module, weights)
    return Classifier(module.eval(), channels_last=True, **replaced(found, given))


def _library(name: str) -> Any:
    """Import an optional library, or raise an error that says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(f"{name} is not installed: pip install {name}") from None
    except RuntimeError as error:  # torchvision's wheel was built for another version of torch
        reason = str(error).splitlines()[0]
        raise MissingExtra(f"{name} does not fit the installed torch ({reason})") from None
