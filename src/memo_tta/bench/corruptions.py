"""Corrupting CIFAR-10's test set: images per second, with more workers, and against the published loop."""

from collections.abc import Iterator
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np

from memo_tta.bench.measurement import Measurement, interleaved, ratio
from memo_tta.data.corrupted_dataset import corrupted
from memo_tta.data.corruptions import CORRUPTIONS, corrupt
from memo_tta.data.corruptions.blur import smooth
from memo_tta.data.dataset import Dataset
from memo_tta.data.sample_images import load_sample
from memo_tta.workers import ordered_map

IMAGES, LEVEL = 10_000, 5  # the size of the test set: the shipped images, many times over
BLOCK = 500
ROUNDS = 5
GLASS_BAR = 1 / 20


def run() -> Iterator[Measurement]:
    yield _glass_blur()
    seconds = {workers: _all_corruptions(workers) for workers in (1, 2)}
    one, two = (sum(times.values()) for times in seconds.values())
    yield Measurement(
        "19 corruptions, 2 workers / 1",
        two / one,
        None,
        "x",
        f"{IMAGES:,} images each at level {LEVEL}: {two:.0f} s / {one:.0f} s",
    )
    for name in CORRUPTIONS:
        rates = [IMAGES / times[name] for times in seconds.values()]
        yield Measurement(name, rates[1], None, "images/s", f"2 workers; {rates[0]:,.0f} with one")


def _all_corruptions(workers: int) -> dict[str, float]:
    """Seconds that each corruption took, with workers that are warm."""
    blocks = IMAGES // BLOCK
    jobs = [(name, block) for name in CORRUPTIONS for block in range(blocks)]
    warm_up = [(CORRUPTIONS[0], 0)] * 2 * workers
    results = ordered_map(corrupt_block, warm_up + jobs, workers)
    for _ in warm_up:
        next(results)
    seconds, began = {}, perf_counter()
    for name in CORRUPTIONS:
        for _ in range(blocks):
            next(results)
        seconds[name] = perf_counter() - began
        began = perf_counter()
    results.close()
    return seconds


def corrupt_block(job: tuple[str, int]) -> int:
    name, block = job
    part: Dataset = corrupted(load_sample(), name, LEVEL, seed=block)
    return sum(int(sample.image[0, 0, 0]) for sample in part.take(range(min(BLOCK, len(part)))))


def _glass_blur() -> Measurement:
    image = load_sample()[0].image
    seconds = interleaved(
        ROUNDS,
        loop=partial(glass_blur_loop, image, np.random.default_rng(0), 0.4, 1, 2),
        ours=lambda: [corrupt(image, "glass_blur", 5, np.random.default_rng(0)) for _ in range(20)],
    )
    seconds["ours"] = [time / 20 for time in seconds["ours"]]
    loop, ours = (median(seconds[name]) * 1000 for name in ("loop", "ours"))
    measured = ratio(seconds, "ours", "loop")
    detail = f"32 pixels, level 5: {ours:.2f} ms / {loop:.1f} ms, {1 / measured:.0f} times as fast"
    return Measurement("glass blur / its loop over pixels", measured, GLASS_BAR, "x", detail)


def glass_blur_loop(
    image: np.ndarray, rng: np.random.Generator, sigma: float, reach: int, passes: int
) -> np.ndarray:
    """As the published generator works: pixel after pixel, in Python."""
    pixels = (smooth(image / 255, sigma) * 255).astype(np.uint8)
    height, width = pixels.shape[:2]
    for _ in range(passes):
        for y in range(height - reach, reach, -1):
            for x in range(width - reach, reach, -1):
                dx, dy = rng.integers(-reach, reach, size=(2,))
                pixels[y, x] = pixels[y + dy, x + dx]
    return (smooth(pixels / 255, sigma).clip(0, 1) * 255).astype(np.uint8)
