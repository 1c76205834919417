"""Time of `restore` on large images, against a forward pass of the bare module.

An image that passes the gate takes the source's pass alone, any other two or three more. Which images pass
depends on the model and the data: CLEAN_PASSING is the lowest share of clean pictures in docs/pictures.md.
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
CLEAN_PASSING = 0.69
CLEAN_BAR, SHIFTED_BAR, RESTORATION_BAR = 2.5, 8.0, 0.15


def run() -> Iterator[Measurement]:
    for name, build in CASES.items():
        yield from _compare(name, build)


def _compare(name: str, build: Callable[[int], nn.Module]) -> Iterator[Measurement]:
    torch.manual_seed(0)
    half = (0.5,) * 3
    classifier = mt.Classifier(build(CLASSES).eval(), size=SIZE, mean=half, std=half, channels_last=True)
    passing, averaging = (mt.method("restore", classifier, skip_margin=margin) for margin in (1e-12, 1.0))
    image = _noisy_image()
    x = classifier.prepare_input(classifier.point(image).x[None])
    statuses = [str(robust.predict(image).status) for robust in (passing, averaging)]
    assert statuses == ["gated", "averaged"], statuses

    def bare() -> None:
        with torch.no_grad():
            classifier.module(x)

    seconds = interleaved(
        ROUNDS,
        bare=bare,
        passing=lambda: passing.predict(image),
        averaging=lambda: averaging.predict(image),
        restoring=lambda: restore(to_float(image)),
    )
    passed, averaged = (ratio(seconds, each, "bare") for each in ("passing", "averaging"))
    detail = f"{torch.get_num_threads()} threads, bare pass {1000 * median(seconds['bare']):.1f} ms"
    clean = CLEAN_PASSING * passed + (1 - CLEAN_PASSING) * averaged
    share = f"{detail}; {100 * CLEAN_PASSING:.0f} % pass the gate: {passed:.2f} x, the rest {averaged:.2f} x"
    yield Measurement(f"restore, clean pictures / bare pass, {name}", clean, CLEAN_BAR, "x", share)
    yield Measurement(f"restore, shifted picture / bare pass, {name}", averaged, SHIFTED_BAR, "x", detail)
    restoring = ratio(seconds, "restoring", "averaging")
    yield Measurement(f"restorations / restore, {name}", restoring, RESTORATION_BAR, "", detail)


def _noisy_image() -> np.ndarray:
    """Return an image with a gradient and noise, which is denoised and deblurred."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(40, 200, SIZE)[:, None, None] * np.ones((1, SIZE, 3))
    return (ramp + rng.normal(0, 25, ramp.shape)).clip(0, 255).astype(np.uint8)
