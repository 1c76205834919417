"""The class names of the data sets that models are trained on."""

from functools import cache
from importlib.resources import files


@cache
def class_list(name: str) -> tuple[str, ...]:
    """Names in the order of their indices: "cifar10" or "imagenet"."""
    return tuple(files("memo_tta").joinpath(f"data/class_lists/{name}.txt").read_text("utf-8").splitlines())
