"""`source` and `restore` on several large images in shared forward passes, against one image at a time."""

import json
import sys
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
import torch
from torch import nn

import memo_tta as mt
from memo_tta.bench.measurement import Measurement, in_new_process, interleaved, ratio
from memo_tta.bench.restore import CASES, CLASSES, GRAIN, NOISE, SIZE, sample_image
from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.runner import run as run_methods
from memo_tta.methods import METHODS
from memo_tta.workers.malloc import keep_freed_memory

METHODS_COMPARED = ("source", "restore")
POINTS, ROUNDS, BAR = 16, 5, 0.7


def run() -> Iterator[Measurement]:
    for name in CASES:
        yield Measurement(**in_new_process("memo_tta.bench.shared_passes", name))


def measure(name: str, build: Callable[[int], nn.Module]) -> Measurement:
    """Evaluate both ways in turns; freed memory is kept, as in the workers of an evaluation."""
    keep_freed_memory()
    torch.manual_seed(0)
    half = (0.5,) * 3
    classifier = mt.Classifier(build(CLASSES).eval(), size=SIZE, mean=half, std=half, channels_last=True)
    images = np.stack([sample_image(NOISE if number % 2 else GRAIN) for number in range(POINTS)])
    data = Dataset("grain and noise", images, np.zeros(POINTS, int), [str(n) for n in range(CLASSES)])

    def evaluate(**options: int) -> Callable[[], object]:
        methods = {method: METHODS[method](classifier, **options) for method in METHODS_COMPARED}
        return lambda: list(run_methods(data, methods))

    seconds = interleaved(ROUNDS, shared=evaluate(), alone=evaluate(batch_points=1))
    shared, alone = (1000 * median(seconds[side]) / POINTS for side in ("shared", "alone"))
    return Measurement(
        f"source and restore, shared passes / one image at a time, {name}",
        ratio(seconds, "shared", "alone"),
        BAR,
        "x",
        f"{POINTS} images, {torch.get_num_threads()} threads: {shared:.0f} / {alone:.0f} ms an image",
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(vars(measure(sys.argv[1], CASES[sys.argv[1]]))))
