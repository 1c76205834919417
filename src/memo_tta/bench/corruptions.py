"""Speed of the corruptions: images per second, two workers against one, glass blur against its loop."""

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

IMAGES, SEVERITY = 10_000, 5  # as many as the CIFAR-10 test set: the bundled images, 20 times
BATCH = 500
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
        f"{IMAGES:,} images each at severity {SEVERITY}: {two:.0f} s / {one:.0f} s",
    )
    for name in CORRUPTIONS:
        rates = [IMAGES / times[name] for times in seconds.values()]
        yield Measurement(name, rates[1], None, "images/s", f"2 workers; {rates[0]:,.0f} with one")


def _all_corruptions(workers: int) -> dict[str, float]:
    """Return the seconds that each corruption takes, after a warm-up of the workers."""
    batches = IMAGES // BATCH
    items = [(name, batch) for name in CORRUPTIONS for batch in range(batches)]
    warm_up = [(CORRUPTIONS[0], 0)] * 2 * workers
    results = ordered_map(corrupt_images, warm_up + items, workers)
    for _ in warm_up:
        next(results)
    seconds, began = {}, perf_counter()
    for name in CORRUPTIONS:
        for _ in range(batches):
            next(results)
        seconds[name] = perf_counter() - began
        began = perf_counter()
    results.close()
    return seconds


def corrupt_images(item: tuple[str, int]) -> int:
    """Corrupt one batch of images; return a checksum, which is cheap to send back."""
    name, batch = item
    dataset: Dataset = corrupted(load_sample(), name, SEVERITY, seed=batch)
    return sum(int(sample.image[0, 0, 0]) for sample in dataset.take(range(min(BATCH, len(dataset)))))


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
    detail = f"32 pixels, severity 5: {ours:.2f} ms / {loop:.1f} ms, {1 / measured:.0f} times as fast"
    return Measurement("glass blur / its loop over pixels", measured, GLASS_BAR, "x", detail)


def glass_blur_loop(
    image: np.ndarray, rng: np.random.Generator, sigma: float, max_delta: int, iterations: int
) -> np.ndarray:
    """Apply glass blur pixel by pixel in Python, as the published generator does."""
    pixels = (smooth(image / 255, sigma) * 255).astype(np.uint8)
    height, width = pixels.shape[:2]
    for _ in range(iterations):
        for y in range(height - max_delta, max_delta, -1):
            for x in range(width - max_delta, max_delta, -1):
                dx, dy = rng.integers(-max_delta, max_delta, size=(2,))
                pixels[y, x] = pixels[y + dy, x + dx]
    return (smooth(pixels / 255, sigma).clip(0, 1) * 255).astype(np.uint8)
