"""Import torchvision if it is installed."""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch


@cache
def import_torchvision() -> ModuleType | None:
    """Return torchvision, or None if it is not installed.

    Next to a build of torch that its compiled operators do not fit, the import fails because they are not
    registered. Declaring two of them makes it succeed; only calling them would fail.
    """
    try:
        return import_module("torchvision")
    except ImportError:
        return None
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        library.define("qnms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        _LIBRARIES.append(library)
        return import_module("torchvision")


_LIBRARIES: list[torch.library.Library] = []  # declarations last as long as their library
