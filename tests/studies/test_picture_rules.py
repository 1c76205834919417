"""The rules that the study tries are those of the method."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

import memo_tta as mt
from memo_tta.data.dataset import Dataset
from memo_tta.methods import METHODS
from studies.picture_passes import RANDOM_VIEWS, VIEWS, Passes
from studies.picture_rules import CHOSEN, SOURCE, Part, Rule, figures

SIZE = 96
rng = np.random.default_rng(0)
IMAGES = (rng.random((12, 1, 1, 3)) * rng.integers(0, 256, (12, SIZE, SIZE, 3))).astype(np.uint8)
DATA = Dataset("pictures", IMAGES, np.arange(12) % 5, list("abcde"))


def classifier() -> mt.Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 5, bias=False)).eval()
    return mt.Classifier(module, size=SIZE, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), labels=list("abcde"))


def collected(model: mt.Classifier) -> Part:
    passes = Passes(model)
    logits, shifts = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for version in ("plain", "restored", "half"):
        for prior in ("off", "16"):
            rows = [passes(model.point(image), version, prior) for image in IMAGES]
            logits[f"{version}-{prior}"] = torch.stack([row for row, _ in rows]).numpy()
            shifts[f"{version}-{prior}"] = torch.stack([shift for _, shift in rows]).double().numpy()
    return Part({name: softmax(rows, axis=-1) for name, rows in logits.items()}, shifts, DATA.targets)


def test_the_chosen_rule_is_the_method():
    model = classifier()
    part = collected(model)
    large = METHODS["restore"].large
    assert large is not None and large["skip_margin"] == CHOSEN.margin
    source = part.probabilities[SOURCE[0]][:, 0]
    margins = np.diff(np.sort(source, axis=1)[:, -2:])[:, 0]
    margin = float(np.median(margins))  # the margins of random weights are small
    rule = replace(CHOSEN, margin=margin)
    predictions = [mt.method("restore", model, skip_margin=margin).predict(image) for image in IMAGES]
    gated = np.array([p.status == "gated" for p in predictions])
    assert 0 < gated.mean() < 1
    wanted, passes = part.answers(rule)
    np.testing.assert_allclose(np.stack([p.probabilities for p in predictions]), wanted, atol=1e-5)
    shifts = part.shifts[SOURCE[0]][:, 0]
    assert 0 < (shifts[~gated] < 0.2).mean() < 1
    np.testing.assert_array_equal(passes, np.where(gated, 1, np.where(shifts < 0.2, 3, 4)))


def test_figures_are_changes_to_the_source_at_the_levels():
    def part(right: int, with_pass: int) -> Part:
        """Return ten pictures, of which the source classifies `right`, and a far surer pass `with_pass`."""
        targets = (np.arange(10) >= right).astype(int)
        sure = np.where(np.arange(10)[:, None] < with_pass, np.eye(2)[targets], np.eye(2)[1 - targets])
        probabilities = {SOURCE[0]: np.tile([0.6, 0.4], (10, 2, 1)), "other": sure[:, None]}
        return Part(probabilities, {SOURCE[0]: np.ones((10, 2)), "other": np.ones((10, 1))}, targets)

    parts = {"clean": part(9, 8), "fog-1": part(0, 0), "fog-3": part(5, 9), "fog-5": part(1, 3)}
    assert figures(parts, Rule([("other", 0)]), "35") == pytest.approx((0.1, 2, (-0.4 - 0.2) / 2, 2))


def test_a_smaller_side_is_what_the_network_sees():
    model = classifier()
    sizes: list[torch.Size] = []
    model.module.register_forward_pre_hook(lambda _module, inputs: sizes.append(inputs[0].shape))
    point = model.point(np.full((SIZE, SIZE, 3), 90, np.uint8))
    small, _ = Passes(model, side=64)(point, "plain", "off")
    whole, _ = Passes(model)(point, "plain", "off")
    assert [tuple(size) for size in sizes] == [(1, 3, 64, 64)] * 2 + [(1, 3, SIZE, SIZE)] * 2
    torch.testing.assert_close(small, whole, atol=1e-3, rtol=0)  # one colour is the same at any size


@pytest.mark.parametrize("name", VIEWS)
def test_views_show_the_picture(name):
    """Views of one colour are that colour, and those of a picture differ from each other."""
    model = classifier()
    flat, picture = (model.point(image) for image in (np.full((SIZE, SIZE, 3), 90, np.uint8), IMAGES[0]))
    views = VIEWS[name](picture, np.random.default_rng(0))
    assert views.shape[1:] == (3, SIZE, SIZE) and len(views) in (2, RANDOM_VIEWS)
    assert len({view.numpy().tobytes() for view in views}) == len(views)
    if not name.startswith("augmix"):
        torch.testing.assert_close(
            VIEWS[name](flat, np.random.default_rng(0)), torch.full_like(views, 90 / 255)
        )
