"""Class lists of CIFAR-10 and ImageNet, and of the data sets that use a part of ImageNet's classes."""

from functools import cache
from importlib.resources import files


@cache
def class_list(name: str) -> tuple[str, ...]:
    """Return class names ("cifar10", "imagenet") or WordNet ids ("imagenet-wnids", "imagenet-r", ...)."""
    return tuple(files("memo_tta").joinpath(f"data/class_lists/{name}.txt").read_text("utf-8").splitlines())
