"""A classifier against the bare module that it holds, and against a bare function."""

from collections.abc import Iterator

import torch

import memo_tta as mt
from memo_tta.bench.measurement import Measurement, interleaved, ratio
from memo_tta.models.networks.resnet import resnet50

SIZE, CLASSES, ROUNDS = 224, 1000, 15
BAR = 1.05


def run() -> Iterator[Measurement]:
    torch.manual_seed(0)
    module = resnet50(CLASSES).eval()
    images = {"size": SIZE, "mean": 0.5, "std": 0.5, "channels": 3}
    classifiers = {
        "a PyTorch module": mt.Classifier(module, **images),
        "a function": mt.Classifier.from_function(module, takes="tensor", **images),
    }
    x = torch.randn(1, 3, SIZE, SIZE)
    for kind, classifier in classifiers.items():
        with torch.no_grad():
            seconds = interleaved(ROUNDS, wrapped=lambda c=classifier: c(x), bare=lambda: module(x))
        yield Measurement(
            f"a forward pass through a classifier of {kind} / the bare one",
            ratio(seconds, "wrapped", "bare"),
            BAR,
            "x",
            "ResNet-50, one image",
        )
