"""Time of `restore` on large images, against a forward pass of the bare module.

A gated image costs the source's pass alone, any other two or three more. How many are gated depends on the
model and the data: CLEAN_GATED is the lowest share of the clean pictures in docs/pictures.md.
"""

from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
import torch
from torch import nn

import memo_tta as mt
from memo_tta.bench.measurement import Measurement, interleaved, ratio
from memo_tta.models.networks.mobilenet_v2 import mobilenet_v2
from memo_tta.models.networks.resnet import resnet50
from memo_tta.views.restoration import restore
from memo_tta.views.restored_views import to_float

CASES: dict[str, Callable[[int], nn.Module]] = {"ResNet-50": resnet50, "MobileNetV2": mobilenet_v2}
SIZE, CLASSES, ROUNDS = 224, 1000, 20
CLEAN_GATED = 0.69
GRAIN, NOISE = 3, 25  # standard deviation of the pixels, out of 255: grain of clean photographs, clear noise
CLEAN_BAR, SHIFTED_BAR, RESTORATION_BAR = 2.5, 8.0, 0.15


def run() -> Iterator[Measurement]:
    for name, build in CASES.items():
        yield from _compare(name, build)


def _compare(name: str, build: Callable[[int], nn.Module]) -> Iterator[Measurement]:
    torch.manual_seed(0)
    half = (0.5,) * 3
    classifier = mt.Classifier(build(CLASSES).eval(), size=SIZE, mean=half, std=half, channels_last=True)
    gated, averaging, all_views = (
        mt.method("restore", classifier, skip_margin=margin, n_views=views, clean_views=None)
        for margin, views in ((1e-12, 3), (1.0, 3), (1.0, 4))
    )
    clean, noisy = sample_image(GRAIN), sample_image(NOISE)
    x = classifier.prepare_input(classifier.point(clean).x[None])
    assert [m.predict(clean).status for m in (gated, averaging, all_views)] == [
        "gated",
        "averaged",
        "averaged",
    ]

    def bare() -> None:
        with torch.no_grad():
            classifier.module(x)

    seconds = interleaved(
        ROUNDS,
        bare=bare,
        gated=lambda: gated.predict(clean),
        averaging=lambda: averaging.predict(clean),
        shifted=lambda: all_views.predict(noisy),
        restoring=lambda: restore(to_float(clean)),
        denoising=lambda: restore(to_float(noisy)),
    )
    stopped, averaged, shifted = (ratio(seconds, each, "bare") for each in ("gated", "averaging", "shifted"))
    detail = f"{torch.get_num_threads()} threads, bare pass {1000 * median(seconds['bare']):.1f} ms"
    mean = CLEAN_GATED * stopped + (1 - CLEAN_GATED) * averaged
    share = f"{detail}; {100 * CLEAN_GATED:.0f} % are gated: {stopped:.2f} x, the rest {averaged:.2f} x"
    yield Measurement(f"restore, clean pictures / bare pass, {name}", mean, CLEAN_BAR, "x", share)
    yield Measurement(f"restore, noisy picture / bare pass, {name}", shifted, SHIFTED_BAR, "x", detail)
    restoring = ratio(seconds, "restoring", "averaging")
    denoising = f"{detail}; of a noisy one: {ratio(seconds, 'denoising', 'shifted'):.2f}"
    yield Measurement(f"restorations / restore, clean, {name}", restoring, RESTORATION_BAR, "", denoising)


def sample_image(noise: float) -> np.ndarray:
    """Return a gradient with noise of this standard deviation."""
    ramp = np.linspace(40, 200, SIZE)[:, None, None] * np.ones((1, SIZE, 3))
    return (ramp + np.random.default_rng(0).normal(0, noise, ramp.shape)).clip(0, 255).astype(np.uint8)
