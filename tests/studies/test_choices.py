"""The studies behind docs/beyond.md predict as the method does, and choose by their rule."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import memo_tta as mt
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.views import Restore
from studies import choose_restorations, choose_step
from studies.choose_restorations import (
    AUGMIX,
    COLLECTED,
    STARTS,
    Choice,
    ViewPredictions,
    choose,
    choose_exit,
    predict_views,
    unseen,
)
from studies.page_markers import fill
from tests.nets import SIZE, build_classifier

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (30, SIZE, SIZE, 3), dtype=np.uint8)
DATA = Dataset("noise", IMAGES, np.arange(30) % 5, list("abcde"))


def classifier():
    found = build_classifier("group-norm")
    found.module.eval()
    return found


@pytest.mark.parametrize("shares", [{"plain": 1, "restored": 3}, dict.fromkeys(COLLECTED, 1)])
def test_a_choice_answers_as_the_method_does(shares):
    choice = Choice(tuple((name, 4 * share) for name, share in shares.items()), 3.0, confidence=0.9)
    robust = mt.method(
        "restore",
        classifier(),
        augment=Restore(SIZE, shares),
        n_views=choice.count,
        weighting="confidence",
        temperature=3.0,
        early_confidence=0.9,
    )
    indices, stops = choice.predict(predict_views(classifier(), DATA))
    expected = [robust.predict(sample.image, sample_id=sample.id) for sample in DATA]
    assert indices.tolist() == [prediction.index for prediction in expected] and len(set(indices)) > 1
    reasons = [prediction.reason or "" for prediction in expected]
    assert stops.tolist() == [reason.startswith("the first 2 views") for reason in reasons]


def found(is_clean: bool = False, points: int = 10, **correct: int) -> ViewPredictions:
    """Return predictions of two classes, the second one true; each version is right on its first points."""
    log_p = np.full((points, STARTS["augmix"] + AUGMIX, 2), np.log(0.5))
    for name, count in correct.items():
        views = slice(STARTS[name], STARTS[name] + (COLLECTED | {"augmix": AUGMIX})[name])
        log_p[:count, views], log_p[count:, views] = np.log([0.1, 0.9]), np.log([0.9, 0.1])
    return ViewPredictions(is_clean, np.zeros(points, int), np.full(points, 0.5), log_p, np.ones(points, int))


def test_a_choice_stops_where_first_views_are_sure():
    part = replace(
        found(restored=10), source=np.ones(10, int), early_confidence=np.array([0.97, 0.92, *[0.0] * 8])
    )
    part = replace(part, log_p=part.log_p[1:])  # the first one has no further views
    choice = Choice((("restored", 8),), confidence=0.9)
    indices, stops = choice.predict(part)
    assert indices.tolist() == [1] * 10 and stops.tolist() == [True, True, *[False] * 8]
    assert choice.forward_passes([part, replace(part, is_clean=True)]) == pytest.approx((2 + 8 * 0.8,) * 2)


def test_the_rule():
    """The choice has few errors on corrupted images, and no more on clean ones than AugMix views."""
    corrupted, clean = found(plain=2, restored=8, augmix=3), found(True, plain=9, restored=9, augmix=9)
    chosen = choose([corrupted, clean])
    assert chosen.errors([corrupted, clean]) == pytest.approx((0.2, 0.1))
    # Restored views outvote those of the image where these are a quarter; eight views do as well as more.
    assert chosen == Choice((("plain", 2), ("restored", 6)))
    harmed = found(True, plain=9, restored=5, augmix=9)
    assert choose([corrupted, harmed]).errors([corrupted, harmed])[1] == pytest.approx(0.1)
    # To stop a point early where the source is wrong is one more error.
    confident = replace(corrupted, early_confidence=np.array([0.92, *[0.0] * 9]))
    assert choose_exit(chosen, [confident, clean]).confidence == 0.95
    assert choose_exit(chosen, [corrupted, clean]).confidence == 0.8


def test_no_image_that_was_seen_is_chosen_from(monkeypatch):
    monkeypatch.setattr(choose_restorations, "SEEN", 10)
    seen, chosen = ({sample.id for sample in part} for part in (balanced(DATA, 10), unseen(DATA, 8)))
    assert len(chosen) == 8 and not seen & chosen


def test_every_candidate_starts_from_the_source(monkeypatch):
    rates = (0.5, 1e-9)
    monkeypatch.setattr(choose_step, "RATES", rates)
    names = [f"{step}, {kind}" for step in ("no step", *rates) for kind in choose_step.PREDICTIONS]
    monkeypatch.setattr(choose_step, "NAMES", names)
    found = classifier()
    before = {name: value.clone() for name, value in found.module.state_dict().items()}
    study = choose_step.Study(found)
    predicted = dict(study.predict(IMAGES[0], np.random.default_rng(0)))
    with torch.no_grad():
        plain = int(found(found.point(IMAGES[0]).x[None]).argmax())
    assert predicted["1e-09, point"] == predicted["no step, point"] == plain
    for kind in choose_step.PREDICTIONS:
        assert predicted[f"1e-09, {kind}"] == predicted[f"no step, {kind}"]
    assert all(torch.equal(before[name], value) for name, value in found.module.state_dict().items())


def test_marked_places_are_written_anew():
    page = "a\n<!-- run x/y -->\nold\n<!-- end -->\nb\n<!-- time z -->\n<!-- end -->\n"
    once = fill(page, {"run": lambda name: f"run {name}\n", "time": lambda name: f"time {name}"})
    assert once == (
        "a\n<!-- run x/y -->\n\nrun x/y\n\n<!-- end -->\nb\n<!-- time z -->\n\ntime z\n\n<!-- end -->\n"
    )
    assert fill(once, {"run": lambda _: "run x/y", "time": lambda _: "time z"}) == once
