"""The classes of the data sets that models are trained on, and of those made from some of them."""

from functools import cache
from importlib.resources import files


@cache
def class_list(name: str) -> tuple[str, ...]:
    """Names ("cifar10", "imagenet") or WordNet ids ("imagenet-wnids", "imagenet-r", "imagenet-a")."""
    return tuple(files("memo_tta").joinpath(f"data/class_lists/{name}.txt").read_text("utf-8").splitlines())
