"""The rules that the study tries are those of the method."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

import memo_tta as mt
from memo_tta.data.dataset import Dataset
from studies.picture_passes import Passes
from studies.picture_rules import SOURCE, Part, figures

SIZE = 96
rng = np.random.default_rng(0)
IMAGES = (rng.random((12, 1, 1, 3)) * rng.integers(0, 256, (12, SIZE, SIZE, 3))).astype(np.uint8)
DATA = Dataset("pictures", IMAGES, np.arange(12) % 5, list("abcde"))


def classifier() -> mt.Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 5, bias=False)).eval()
    return mt.Classifier(module, size=SIZE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), labels="abcde")


def collected() -> Part:
    passes, found = Passes(classifier()), {}
    shift = np.zeros(len(IMAGES))
    for version in ("plain", "restored"):
        for prior in ("off", "16"):
            rows = [passes.logits(image, version, prior) for image in IMAGES]
            found[f"{version}-{prior}"] = softmax(np.stack([r for r, _ in rows]).astype(np.float32), axis=-1)
            shift = np.array([value for _, value in rows]) if (version, prior) == ("plain", "off") else shift
    return Part(found, shift, DATA.targets)


def test_a_rule_answers_as_the_method_does():
    part = collected()
    passes = [("restored-off", 1), ("plain-16", 0), ("restored-16", 1)]
    limits = (2.0, 2 * float(np.median(part.shift)))  # the entropy of random weights is nearly log K
    robust = mt.method("restore", classifier(), skip_entropy=limits[0], skip_shift=limits[1])
    predictions = [robust.predict(image) for image in IMAGES]
    gated = np.mean([p.status == "gated" for p in predictions])
    assert 0 < gated < 1
    wrong = np.mean([p.index for p in predictions] != DATA.targets)
    assert part.error(passes, limits) == pytest.approx((wrong, 1 + 3 * (1 - gated)))


def test_figures_average_the_parts_at_levels_three_and_five():
    def part(right: int) -> Part:
        probabilities = np.tile([0.9, 0.1], (10, 2, 1))
        return Part({SOURCE[0]: probabilities}, np.zeros(10), (np.arange(10) >= right).astype(int))

    parts = {"clean": part(9), "fog-1": part(0), "fog-3": part(5), "fog-5": part(1)}
    assert figures(parts, [], (0.0, 0.0)) == pytest.approx((0.1, 1, 0.7, 1))


def test_a_smaller_side_is_what_the_network_sees():
    model = classifier()
    sizes: list[torch.Size] = []
    model.module.register_forward_pre_hook(lambda _module, inputs: sizes.append(inputs[0].shape))
    flat = np.full((SIZE, SIZE, 3), 90, np.uint8)
    small, _ = Passes(model, side=64).logits(flat, "plain", "off")
    whole, _ = Passes(model).logits(flat, "plain", "off")
    assert [tuple(size) for size in sizes] == [(2, 3, 64, 64), (2, 3, SIZE, SIZE)]
    np.testing.assert_allclose(small, whole, atol=1e-3)  # one colour is the same at any size
