"""Speed of AugMix, from an image to normalised views: ours, the published code, and torchvision."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from statistics import median

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from memo_tta.bench import torchvision_import
from memo_tta.bench.measurement import Measurement, interleaved, ratio
from memo_tta.bench.published_loop import make_views_one_by_one
from memo_tta.data.sample_images import load_sample
from memo_tta.views import AugMix

ROUNDS, THREADS = 15, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PHOTO = (500, 375)  # width and height


@dataclass(frozen=True)
class ViewsCase:
    """An image size, the number of views and the bar."""

    size: int
    crop: str
    views: int
    calls: int  # of ours per round, so that the caches are cold only for the first
    bar: float


CASES = (ViewsCase(224, "resized", 64, 1, 1 / 10), ViewsCase(32, "padded", 32, 20, 1 / 40))


def run() -> Iterator[Measurement]:
    threads = torch.get_num_threads()
    try:
        for case in CASES:
            yield from _compare(case)
    finally:
        torch.set_num_threads(threads)


def _compare(case: ViewsCase) -> Iterator[Measurement]:
    image, augment = _picture(case), AugMix(case.size, case.crop)
    rng = np.random.default_rng(0)

    def published() -> Tensor:
        torch.set_num_threads(1)
        return make_views_one_by_one(augment, image, case.views, rng, case.crop, MEAN, STD)

    def ours() -> None:
        torch.set_num_threads(THREADS)
        for _ in range(case.calls):
            augment.normalised(image, case.views, rng, MEAN, STD)

    actions: dict[str, Callable[[], object]] = {"published": published, "ours": ours}
    if torchvision_import.import_torchvision() is not None:
        actions["torchvision"] = partial(_torchvision_views, image, case)
    seconds = interleaved(ROUNDS, **actions)
    seconds["ours"] = [time / case.calls for time in seconds["ours"]]
    milliseconds = {name: f"{1000 * median(times):.3g}" for name, times in seconds.items()}
    for name, (label, threads, bar) in {
        "published": ("published code", 1, case.bar),
        "torchvision": ("v2.AugMix", THREADS, None),
    }.items():
        if name in actions:
            measured = ratio(seconds, "ours", name)
            detail = (
                f"B = {case.views}, {THREADS} threads / {threads}: {milliseconds['ours']} ms / "
                f"{milliseconds[name]} ms, {1 / measured:.0f} times as fast"
            )
            yield Measurement(f"AugMix views / {label}, {case.size} px", measured, bar, "x", detail)


def _picture(case: ViewsCase) -> np.ndarray:
    """Return a bundled image; for the large case enlarged to the size of a photo, with fine grain."""
    small = load_sample()[0].image
    if case.crop == "padded":
        return np.array(Image.fromarray(small).resize((case.size, case.size)))
    large = np.asarray(Image.fromarray(small).resize(PHOTO, Image.Resampling.BICUBIC))
    grain = np.random.default_rng(0).normal(0, 4, large.shape)
    return (large + grain).clip(0, 255).astype(np.uint8)


def _torchvision_views(image: np.ndarray, case: ViewsCase) -> Tensor:
    torch.set_num_threads(THREADS)
    transforms = import_module("torchvision.transforms.v2")
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
