"""What the scripts behind docs/beyond.md compute is what the method does."""

import numpy as np
import pytest
import torch

import memo_tta as mt
from benchmarks import choose_restorations, choose_step
from benchmarks.choose_restorations import CROPS, NAMES, Answers, Choice, answers, fresh, shrink
from benchmarks.marked import fill
from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.summary import balanced
from memo_tta.views import Restore
from tests.nets import SIZE, build_classifier

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (30, SIZE, SIZE, 3), dtype=np.uint8)
DATA = Dataset("noise", IMAGES, np.arange(30) % 5, list("abcde"))


def classifier():
    found = build_classifier("group-norm")
    found.module.eval()
    return found


def test_a_choice_answers_as_the_method_does():
    choice = Choice(tuple(range(len(NAMES))), CROPS, 3.0)
    labels, stops = choice.labels(answers(classifier(), DATA))
    robust = mt.Memo(
        classifier(),
        preset="best",
        augment=Restore(SIZE, NAMES),
        n_views=CROPS * len(NAMES),
        temperature=3.0,
        early_views=None,
    )
    said = [int(robust.predict(sample.image, sample_id=sample.id).logits.argmax()) for sample in DATA]
    assert labels.tolist() == said and not stops.any()
    assert len(set(said)) > 1


def test_a_choice_stops_where_first_views_agree_with_the_source_and_are_sure():
    sure, unsure = np.log([[0.98, 0.02]]), np.log([[0.6, 0.4]])
    log_p = np.stack([np.stack([rows] * 2) for rows in (sure, unsure, sure)])  # versions and crops
    log_p = np.concatenate([log_p] * 2, axis=2)
    found = Answers(True, log_p, np.array([0, 0, 1]), np.array([0, 0, 0]))
    choice = Choice((0, 1), 2, 1.0, exit=(2, 0.9))
    assert choice.labels(found)[1].tolist() == [True, False, False]  # the last one's source says otherwise
    assert choice.forwards(
        [found, Answers(False, *(getattr(found, n) for n in ("log_p", "source", "label")))]
    ) == (pytest.approx(2 + 4 * 2 / 3))


def test_a_version_that_harms_is_left_out():
    right, wrong = np.log([0.9, 0.1]), np.log([0.001, 0.999])
    versions = np.stack([right] * len(NAMES))
    versions[4] = wrong
    log_p = np.tile(versions[None, :, None], (6, 1, CROPS, 1))
    log_p[:3, :4] = log_p[:3, 5:] = np.log([0.5, 0.5])  # so the wrong one decides
    found = Answers(False, log_p, np.zeros(6, int), np.zeros(6, int))
    clean = Answers(True, log_p, np.zeros(6, int), np.zeros(6, int))
    assert shrink([found, clean], 4, 8).versions == tuple(v for v in range(len(NAMES)) if v != 4)


def test_no_reported_image_is_chosen_from(monkeypatch):
    monkeypatch.setattr(choose_restorations, "REPORTED", 10)
    reported, chosen = ({sample.id for sample in part} for part in (balanced(DATA, 10), fresh(DATA, 8)))
    assert len(chosen) == 8 and not reported & chosen


def test_every_candidate_starts_from_the_source(monkeypatch):
    monkeypatch.setattr(choose_step, "RATES", (0.5, 1e-9))
    found = classifier()
    before = {name: value.clone() for name, value in found.module.state_dict().items()}
    study = choose_step.Study(found)
    said = dict(study.labels(IMAGES[0], np.random.default_rng(0)))
    with torch.no_grad():
        plain = int(found(found.point(IMAGES[0]).x[None]).argmax())
    assert said["1e-09, point"] == plain and said["1e-09, average"] == said["no step"]
    assert all(torch.equal(before[name], value) for name, value in found.module.state_dict().items())


def test_marked_places_are_written_anew():
    page = "a\n<!-- run x/y -->\nold\n<!-- end -->\nb\n<!-- time z -->\n<!-- end -->\n"
    once = fill(page, {"run": lambda name: f"run {name}\n", "time": lambda name: f"time {name}"})
    assert once == (
        "a\n<!-- run x/y -->\n\nrun x/y\n\n<!-- end -->\nb\n<!-- time z -->\n\ntime z\n\n<!-- end -->\n"
    )
    assert fill(once, {"run": lambda _: "run x/y", "time": lambda _: "time z"}) == once
