"""The runner: predictions, shared work and costs of methods on labelled points."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memo_tta.data.dataset import Dataset, balanced
from memo_tta.errors import ConfigError, InputError
from memo_tta.evaluation.class_matching import match_classes
from memo_tta.evaluation.comparison import method_results
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import Record, SkippedPoint
from memo_tta.evaluation.results import collect
from memo_tta.evaluation.runner import Methods, run
from memo_tta.evaluation.statistics import wilson_interval
from memo_tta.evaluation.worker import WorkerContext
from memo_tta.methods import METHODS
from memo_tta.views import AugMix
from memo_tta.views.execution import cpu_execution
from tests.nets import SIZE, build_classifier, pictures


def dataset(n: int) -> Dataset:
    return Dataset("noise", np.stack(pictures(n)), np.arange(n) % 5, list("abcde"))


def run_all(data: Dataset, methods: Methods) -> list[Record]:
    """Run the methods on data in which every point can be read."""
    rows = list(run(data, methods))
    records = [row for row in rows if isinstance(row, Record)]
    assert len(records) == len(rows)
    return records


def without_time(records: list[Record]) -> list[Record]:
    return [replace(record, seconds=0, views_seconds=0, predict_seconds=0) for record in records]


@pytest.mark.parametrize("kind", ["group-norm", "batch-norm"])
def test_methods_together_say_what_each_says_alone(kind):
    names = ("source", "tta", "memo", "memo-ce", "tent-bs1", *(["bn1"] if kind == "batch-norm" else []))
    classifier = build_classifier(kind)
    options: dict[str, dict[str, Any]] = {name: {"n_views": 4} for name in ("tta", "memo", "memo-ce")}
    options["memo"] |= {"steps": 2, "lr": 0.01}  # the second step draws views of its own

    def build(name):
        return METHODS[name](classifier, **options.get(name, {}))

    data = dataset(3)
    together = run_all(data, {name: build(name) for name in names})
    assert {(row.position, row.method) for row in together} == set(product(range(3), names))
    for row in together:
        alone = build(row.method).predict(data.images[row.position], sample_id=row.position)
        assert (row.prediction, row.target, row.adapted) == (alone.index, row.position % 5, alone.adapted)
        assert row.score == pytest.approx(alone.score, rel=1e-5)
        assert row.entropy_after == pytest.approx(alone.entropy, rel=1e-4, abs=1e-6)
        assert row.entropy_before == pytest.approx(alone.source.entropy, rel=1e-5)


class Counting:
    """An augmentation that counts its calls."""

    calls = 0

    def __init__(self):
        self.inner = AugMix(SIZE)

    def __call__(self, image, n, rng):
        self.calls += 1
        return self.inner(image, n, rng)


def test_views_and_the_source_s_answer_are_had_once():
    classifier, augment, forwards = build_classifier("group-norm"), Counting(), []
    methods = {
        "source": METHODS["source"](classifier),
        "tta": METHODS["tta"](classifier, n_views=4, augment=augment),
        "memo": METHODS["memo"](classifier, n_views=4, augment=augment),
    }
    hook = classifier.module.register_forward_pre_hook(lambda _, inputs: forwards.append(len(inputs[0])))
    rows = run_all(dataset(2), methods)
    hook.remove()
    assert augment.calls == 2  # once per point
    # Source and tta, each with both points; for each point, memo before and after its step.
    assert forwards == [2, 8, 4, 1, 4, 1]
    tta, memo = ([row for row in rows if row.method == name] for name in ("tta", "memo"))
    views_seconds = sum(row.views_seconds for row in memo)
    assert sum(row.views_seconds for row in tta) == pytest.approx(views_seconds) and views_seconds > 0
    assert all(row.seconds > row.views_seconds for row in tta)
    assert all(0 < row.predict_seconds < row.seconds for row in memo)


def test_batches_come_in_order_and_the_last_one_is_short():
    classifier, sizes = build_classifier("batch-norm"), []
    classifier.module.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    bn = METHODS["bn"](classifier, batch_size=4)
    rows = run_all(dataset(10), {"bn": bn})
    assert [row.position for row in rows] == list(range(10)) and sizes[::2] == [4, 4, 2]


def test_an_online_method_starts_from_the_source():
    tent = METHODS["tent"](build_classifier("batch-norm"), batch_size=3, lr=0.1)
    first, again = (without_time(run_all(dataset(9), {"tent": tent})) for _ in range(2))
    assert first == again
    alone = METHODS["tent"](build_classifier("batch-norm"), batch_size=3, lr=0.1).predict(pictures(9))
    assert [row.prediction for row in first] == [p.index for p in alone]


class Broken:
    """Five images, of which the third cannot be read."""

    def __len__(self):
        return 5

    def __getitem__(self, position):
        if position == 2:
            raise InputError("c.png: not an image")
        return pictures(5)[position]


def test_bad_images_stop_unless_they_may_be_skipped():
    data = Dataset("own", Broken(), np.zeros(5, int), list("abcde"), ids=list("abcde"))
    classifier = build_classifier("batch-norm")
    methods = {name: METHODS[name](classifier) for name in ("source", "bn")}
    with pytest.raises(InputError, match=r"not an image \(--skip-bad leaves such images out\)"):
        list(run(data, methods))
    rows = list(run(data, methods, skip_bad=True))
    assert [row.sample for row in rows if isinstance(row, SkippedPoint)] == ["c", "c"]
    assert [row.position for row in rows if isinstance(row, Record)] == [0, 1, 3, 4] * 2


def test_summary_counts_errors_by_data_set_and_method():
    methods = {"source": METHODS["source"](build_classifier("group-norm"))}
    records = run_all(dataset(10), methods)
    (block,) = collect(records)
    (row,) = method_results(block)
    wrong = sum(r.prediction != r.target for r in records)
    assert (block.dataset, row.method, row.points, row.error) == ("noise", "source", 10, wrong / 10)
    assert (row.low, row.high) == pytest.approx(wilson_interval(wrong, 10), rel=1e-12)
    assert row.seconds == np.median([r.seconds for r in records])


@given(st.integers(1, 40), st.integers(0, 3))
def test_a_balanced_part_spreads_over_the_classes(count, seed):
    data = dataset(40)
    part = balanced(data, count, seed)
    counts = np.bincount(part.targets, minlength=5)
    assert len(part) == count and counts.max() - counts.min() <= 1
    ids = [sample.id for sample in part]
    assert ids == sorted(ids) == [sample.id for sample in balanced(data, count, seed)]


def test_a_balanced_part_of_many_classes_is_not_the_first_of_them():
    data = Dataset(
        "many", np.zeros((1000, 1, 1, 3), np.uint8), np.arange(1000), [str(i) for i in range(1000)]
    )
    positions = np.array([sample.id for sample in balanced(data, 100)])
    assert positions.max() > 900 and abs(positions.mean() - 500) < 100


def test_labels_are_fitted_to_the_model_by_name():
    classifier = build_classifier("group-norm")
    own = Dataset("own", np.zeros((3, 8, 8, 3), np.uint8), np.array([0, 1, 1]), ["b", "e"])
    assert match_classes(classifier, own)[1].targets.tolist() == [1, 4, 4]
    numbered = replace(own, labels=["0", "1"])
    assert match_classes(classifier, numbered)[1].targets.tolist() == [0, 1, 1]
    with pytest.raises(
        ConfigError, match=r"own: has 2 classes, the model 5, and 'x' is not among the model's"
    ):
        match_classes(classifier, replace(own, labels=["b", "x"]))


@pytest.mark.parametrize(("name", "expected"), [("source", 0), ("tta", 1)])
def test_compiled_code_is_loaded_before_the_first_image(name, expected):
    context = WorkerContext(EvaluationJob(data=("sample",), model="resnet26", methods=(name,), limit=1))
    cpu_execution.cache_clear()
    context.method(0, name)
    assert cpu_execution.cache_info().currsize == expected
