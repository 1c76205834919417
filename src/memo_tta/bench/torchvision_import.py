"""Libraries that are compared with, where they are installed."""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch


@cache
def torchvision() -> ModuleType | None:
    """Also beside a build of torch that its compiled operators do not fit: then these cannot be called."""
    try:
        return import_module("torchvision")
    except ImportError:
        return None
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        library.define("qnms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        _KEPT.append(library)
        return import_module("torchvision")


_KEPT: list[torch.library.Library] = []  # definitions go when their library does
