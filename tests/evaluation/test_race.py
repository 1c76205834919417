"""The race behind `memo advise`: its rounds, its resumption, and what becomes of bad candidates."""

import json
from pathlib import Path

import numpy as np
import pytest

import memo_tta as mt
from memo_tta.errors import ConfigError, MemoError
from memo_tta.evaluation.advice import Advice, AdviceRequest, advise, prepare_race
from memo_tta.evaluation.candidates import SINGLE, STREAM, Candidate, usable_candidates
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.race import FEWEST, FILE, Race, Round, plan_round
from memo_tta.evaluation.recommendation import MethodLimits
from memo_tta.evaluation.store import open_for_reading
from memo_tta.methods import METHODS
from memo_tta.workers import Processes
from tests.runs import record

SOURCE, RESTORE = Candidate("source"), Candidate("restore")
TTA = Candidate("tta", {"n_views": 2})
MEMO = Candidate("memo", {"n_views": 2})
BROKEN = Candidate("memo", {"n_views": 2, "lr": 10.0, "steps": 3})  # predicts by chance
NO_LIMITS = MethodLimits()
COSTS = {"source": 1.0, "restore": 4.0, "memo": 40.0, "tta": 15.0}


@pytest.fixture
def no_progress():
    return lambda done, total, note: None


def job(limit: int = 24, **values) -> EvaluationJob:
    return EvaluationJob(
        **{"data": ("sample",), "model": "resnet26", "limit": limit, "severities": None, **values}
    )


def race(
    folder: Path, candidates=(SOURCE, TTA, RESTORE), limits: MethodLimits = NO_LIMITS, limit: int = 24
) -> Race:
    shifts = ["sample+speckle_noise:4", "sample+gaussian_blur:4"]
    return Race(
        job(limit, data=["sample", *shifts]),
        "sample",
        candidates,
        limits,
        folder,
        mt.load("resnet26"),
    )


def test_the_first_round_drops_what_takes_too_long_for_a_few_images():
    plan = plan_round(1, COSTS, start=1, images=100, seconds=3 * FEWEST * 60)
    assert plan.candidates == ["source", "restore", "tta", "memo"]
    assert (plan.start, plan.stop) == (1, 1 + FEWEST)
    plan = plan_round(1, COSTS, start=1, images=100, seconds=3 * FEWEST * 59.9)
    assert plan.candidates == ["source", "restore", "tta"]
    assert plan_round(1, COSTS, 1, 100, seconds=0).candidates == ["source", "restore"]


def test_a_method_that_is_slow_on_some_images_costs_its_mean(tmp_path):
    planned = race(tmp_path, (SOURCE, TTA, RESTORE), limit=1000)
    parts = [("", 0), ("fog", 4), ("snow", 4)]
    for name, seconds in {"source": (1, 1, 1), TTA.name: (4, 4, 4), "restore": (1, 1, 40)}.items():
        planned._records[name] = [
            record(name, 0, True, dataset="sample", corruption=corruption, severity=severity, seconds=each)
            for (corruption, severity), each in zip(parts, seconds, strict=True)
        ]
    assert planned._plan(1, [Round([], 0, 1)], 1e9).candidates == ["source", TTA.name, "restore"]


def test_the_second_round_keeps_what_can_finish_all_images():
    plan = plan_round(2, COSTS, start=10, images=100, seconds=90 * 20)
    assert plan.candidates == ["source", "restore", "tta"]
    assert plan.stop == 10 + 90 * 20 // 2 // 20
    assert plan_round(2, COSTS, 10, 100, 90 * 19.9).candidates == ["source", "restore"]


def test_a_leader_that_costs_much_leaves_half_of_the_time_to_others():
    leader_is_slow = {"memo": 40.0, "source": 1.0, "restore": 4.0, "tta": 15.0}
    assert plan_round(2, leader_is_slow, 10, 100, 90 * 10).candidates == ["source", "memo", "restore"]
    assert plan_round(2, leader_is_slow, 10, 100, 90 * 40).candidates == ["source", "memo", "restore", "tta"]


def test_the_last_round_keeps_what_can_finish_all_images():
    assert plan_round(3, COSTS, 40, 100, seconds=60 * 20).candidates == ["source", "restore", "tta"]
    plan = plan_round(3, COSTS, 40, 100, seconds=60 * 19.9)
    assert plan.candidates == ["source", "restore"] and plan.stop == 100


def test_a_race_stores_each_prediction_once_and_is_the_same_when_resumed(tmp_path, no_progress):
    with Processes(1) as engine:
        whole = race(tmp_path / "whole")
        expected = advise(whole, engine, 3600, no_progress)
        plan = json.loads((tmp_path / "whole" / FILE).read_text())

        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / FILE).write_text(json.dumps(plan))

        def stop(done: int, total: int, note: str) -> None:
            if note.startswith("round 2"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            advise(race(tmp_path / "broken"), engine, 3600, stop)
        resumed = race(tmp_path / "broken")
        found = advise(resumed, engine, 3600, no_progress)
    for block, other in ((expected.shifted, found.shifted), (expected.clean, found.clean)):
        assert block is not None and other is not None
        for name in block.methods:
            assert np.array_equal(block.pooled(name).prediction, other.pooled(name).prediction)
            for part in block.parts.values():  # images are counted once, from round to round
                assert np.array_equal(part[name].position, np.arange(len(part[name])))
    assert expected.source_error(expected.shifted) == found.source_error(found.shifted)
    assert whole.predictions("source") == resumed.predictions("source")


def test_rounds_have_different_images_which_are_those_of_one_evaluation(tmp_path, no_progress):
    with Processes(1) as engine:
        raced = race(tmp_path)
        advise(raced, engine, 3600, no_progress)
        grid = race(tmp_path / "all", limit=json.loads((tmp_path / FILE).read_text())["rounds"][-1]["stop"])
        grid.run_grid(engine, no_progress)
    rounds = [predictions(folder) for folder in sorted(tmp_path.glob("round-*"))]
    together = {key: value for each in rounds for key, value in each.items()}
    assert len(together) == sum(map(len, rounds))
    everything = predictions(tmp_path / "all" / "grid-0")
    assert together == {key: everything[key] for key in together}
    assert {key for key in everything if key[0] == "source"} <= together.keys()


def predictions(run: Path) -> dict[tuple[str, str, str], int]:
    with open_for_reading(run) as store:
        return {(row.method, row.corruption, row.sample): row.prediction for row in store.records()}


def test_a_candidate_that_does_harm_leaves_the_race(tmp_path, no_progress):
    with Processes(1) as engine:
        running = race(tmp_path, (SOURCE, BROKEN, RESTORE), limit=40)
        advice = advise(running, engine, 3600, no_progress)
    broken = next(each for each in advice.tried if each.candidate == BROKEN)
    assert broken.dropped and broken.predictions < running.predictions("source")
    assert advice.method in ("restore", "source")


def test_a_candidate_over_the_budget_leaves_at_once_and_the_source_has_to_fit(tmp_path, no_progress):
    with Processes(1) as engine:
        steps = Candidate("memo", {"n_views": 64, "steps": 4})  # several times the budget
        slow = race(tmp_path / "slow", (SOURCE, steps, RESTORE), MethodLimits(seconds=0.15))
        advise(slow, engine, 3600, no_progress)
        assert slow.dropped == {steps.name: "over the budget"}
        with pytest.raises(ConfigError, match="the source alone takes"):
            advise(race(tmp_path / "none", limits=MethodLimits(seconds=1e-5)), engine, 3600, no_progress)


def test_a_folder_of_another_race_is_refused(tmp_path, no_progress):
    with Processes(1) as engine:
        advise(race(tmp_path, (SOURCE, RESTORE), limit=5), engine, 3600, no_progress)
        with pytest.raises(ConfigError, match="is a race of other data, another model or other limits"):
            advise(race(tmp_path, (SOURCE, RESTORE), limit=6), engine, 3600, no_progress)
        (tmp_path / FILE).write_text("{")
        with pytest.raises(ConfigError, match="is damaged"):
            advise(race(tmp_path, (SOURCE, RESTORE), limit=5), engine, 3600, no_progress)


@pytest.mark.parametrize("candidate", [*SINGLE, *STREAM], ids=lambda one: one.name)
def test_an_image_is_timed_alone_unless_the_method_takes_several(candidate):
    method = METHODS[candidate.method](mt.load("resnet20-bn"), **candidate.evaluated_options)
    assert method.batch_points == 1 or method.points > 1


def test_only_methods_with_an_effect_on_the_model_race():
    group_norm, batch_norm = mt.load("resnet26"), mt.load("resnet20-bn")
    assert {c.method for c in usable_candidates(group_norm, False)} == {
        *("source", "tta", "restore", "memo-fast", "memo")
    }
    assert usable_candidates(batch_norm, False) == list(SINGLE)
    assert usable_candidates(batch_norm, True) == [*SINGLE, *STREAM]
    forward_only = mt.Classifier.from_function(lambda x: x.mean((2, 3)), size=32, mean=0.0, std=1.0)
    assert {c.method for c in usable_candidates(forward_only, True)} == {"source", "tta", "restore"}


def test_a_model_that_nothing_helps_is_left_as_it_is(tmp_path, no_progress):
    """A model that is right on every image, corrupted or not, cannot be improved."""
    rng = np.random.default_rng(0)
    targets = np.arange(40) % 2
    images = np.where(targets == 1, 200, 50)[:, None, None, None] + rng.integers(0, 20, (40, 32, 32, 3))
    np.savez(tmp_path / "made.npz", x=images.astype(np.uint8), y=targets)

    def bright(x: np.ndarray) -> np.ndarray:
        level = 40 * (x.mean((1, 2, 3)) - 0.5)
        return np.stack([-level, level], axis=1)

    classifier = mt.Classifier.from_function(bright, size=32, mean=0.0, std=1.0)
    request = AdviceRequest(EvaluationJob(data=(str(tmp_path / "made.npz"),), model="bright", limit=40))
    with Processes(1) as engine:
        running = prepare_race(request, tmp_path / "race", classifier)
        advice: Advice = advise(running, engine, 3600, no_progress)
    assert advice.method == "source" and advice.options == {}


def test_a_model_that_fails_is_an_error(tmp_path, no_progress):
    def fails(x: np.ndarray) -> np.ndarray:
        raise RuntimeError("broken")

    classifier = mt.Classifier.from_function(fails, size=32, mean=0.0, std=1.0)
    request = AdviceRequest(job())
    with Processes(1) as engine, pytest.raises(MemoError, match="RuntimeError: broken"):
        advise(prepare_race(request, tmp_path, classifier), engine, 3600, no_progress)
