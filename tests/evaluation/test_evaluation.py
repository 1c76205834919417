import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.runner import balanced, run, summarise
from memo_tta.evaluation.statistics import wilson_interval
from memo_tta.methods import METHODS
from tests.nets import build_classifier, pictures


def dataset(n: int) -> Dataset:
    return Dataset("noise", np.stack(pictures(n)), np.arange(n) % 5, list("abcde"))


def test_records_say_who_said_what_of_which_point():
    classifier = build_classifier("group-norm")
    methods = {name: METHODS[name](classifier) for name in ("source", "tent-bs1")}
    data = dataset(6)
    records = list(run(data, methods))
    assert [(r.sample, r.method) for r in records[:3]] == [(0, "source"), (0, "tent-bs1"), (1, "source")]
    for record in records:
        again = methods[record.method].predict(data.images[record.sample], sample_id=record.sample)
        assert again.index == record.prediction.index and record.label == record.sample % 5
        assert record.right == (record.prediction.label == "abcde"[record.label]) and record.seconds > 0


def test_summary_counts_errors_by_data_set_and_method():
    methods = {"source": METHODS["source"](build_classifier("group-norm"))}
    records = list(run(dataset(10), methods))
    (row,) = summarise(records)
    wrong = sum(r.prediction.index != r.label for r in records)
    assert (row.dataset, row.method, row.points, row.error) == ("noise", "source", 10, wrong / 10)
    assert (row.low, row.high) == wilson_interval(wrong, 10)
    assert row.seconds == np.median([r.seconds for r in records])


@given(st.integers(1, 40))
def test_a_balanced_part_spreads_over_the_classes(count):
    part = balanced(dataset(40), count)
    counts = np.bincount(part.y, minlength=5)
    assert len(part) == count and counts.max() - counts.min() <= -(-count // 5)
