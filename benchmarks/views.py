"""AugMix views, from an image to normalised views: ours, the published way, and torchvision's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.measure import Row, interleaved, ratio
from benchmarks.paper_style import make_views
from memo_tta.data.sample_images import load_sample
from memo_tta.views import AugMix

ROUNDS, THREADS = 15, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PHOTO = (500, 375)  # width and height


@dataclass(frozen=True)
class Case:
    size: int
    crop: str
    views: int
    bar: float


CASES = (Case(224, "resized", 64, 1 / 10), Case(32, "padded", 32, 1 / 40))


def run() -> Iterator[Row]:
    threads = torch.get_num_threads()
    try:
        for case in CASES:
            yield from _compare(case)
    finally:
        torch.set_num_threads(threads)


def _compare(case: Case) -> Iterator[Row]:
    image, augment = _picture(case), AugMix(case.size, case.crop)
    rng = np.random.default_rng(0)

    def published() -> Tensor:
        torch.set_num_threads(1)
        plan = augment.plan(image, case.views, rng)
        return make_views(image, plan, case.size, case.crop, MEAN, STD)

    def ours() -> Tensor:
        torch.set_num_threads(THREADS)
        return augment.normalised(image, case.views, rng, MEAN, STD)

    actions: dict[str, Callable[[], Tensor]] = {"published": published, "ours": ours}
    if (transforms := _transforms()) is not None:
        actions["torchvision"] = partial(_torchvision_views, transforms, image, case)
    seconds = interleaved(ROUNDS, **actions)
    milliseconds = {name: f"{1000 * median(times):.3g}" for name, times in seconds.items()}
    for name in actions.keys() - {"ours"}:
        measured = ratio(seconds, "ours", name)
        yield Row(
            f"AugMix views / {'the published way' if name == 'published' else 'v2.AugMix'}, {case.size} px",
            measured,
            case.bar if name == "published" else None,
            "x",
            f"B = {case.views}, {THREADS} threads{' / 1' if name == 'published' else ''}: "
            f"{milliseconds['ours']} ms / {milliseconds[name]} ms, {1 / measured:.0f} times as fast",
        )


def _picture(case: Case) -> np.ndarray:
    """A shipped image at the size of a photo, with a photo's fine grain; small ones as they are."""
    small = load_sample()[0].image
    if case.crop == "padded":
        return np.asarray(Image.fromarray(small).resize((case.size, case.size)))
    large = np.asarray(Image.fromarray(small).resize(PHOTO, Image.Resampling.BICUBIC))
    grain = np.random.default_rng(0).normal(0, 4, large.shape)
    return (large + grain).clip(0, 255).astype(np.uint8)


def _torchvision_views(transforms: Any, image: np.ndarray, case: Case) -> Tensor:
    torch.set_num_threads(THREADS)
    crop = (
        transforms.RandomCrop(case.size, padding=case.size // 8)
        if case.crop == "padded"
        else transforms.RandomResizedCrop(case.size, antialias=True)
    )
    one_view = transforms.Compose(
        [
            crop,
            transforms.RandomHorizontalFlip(),
            transforms.AugMix(severity=1),
            transforms.ToDtype(torch.float32, scale=True),
            transforms.Normalize(MEAN, STD),
        ]
    )
    pixels = torch.from_numpy(image).permute(2, 0, 1).contiguous()
    return torch.stack([one_view(pixels) for _ in range(case.views)])


@cache
def _transforms() -> Any:
    """torchvision's, where it is installed, also beside a build of torch that its operators do not fit."""
    try:
        return import_module("torchvision.transforms.v2")
    except ImportError:
        return None
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        library.define("qnms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        _KEPT.append(library)
        return import_module("torchvision.transforms.v2")


_KEPT: list[torch.library.Library] = []  # its definitions go when it does
