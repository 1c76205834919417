"""Errors, intervals and comparisons against an independent count."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from memo_tta.evaluation.alexnet_errors import ALEXNET, ALEXNET_CLEAN
from memo_tta.evaluation.comparison import (
    MethodResult,
    compare,
    differences,
    mean_error,
    method_results,
)
from memo_tta.evaluation.records import Record
from memo_tta.evaluation.results import ResultBlock, collect
from memo_tta.evaluation.statistics import PairedComparison, mcnemar_p, paired, wilson_interval
from tests.runs import random_records, record

PARTS = [("fog", 1), ("fog", 5), ("snow", 5)]


def wrong(records: Sequence[Record], method: str, **where: Any) -> np.ndarray:
    """Return which records of a method are wrong, among those with these values."""
    chosen = [r for r in records if r.method == method]
    return np.array([not r.right for r in chosen if all(getattr(r, k) == v for k, v in where.items())])


def by_method(block: ResultBlock, with_mce: bool = False, clean: ResultBlock | None = None):
    return {row.method: row for row in method_results(block, with_mce, clean)}


def to_source(row: MethodResult) -> PairedComparison:
    assert row.to_source is not None
    return row.to_source


def compared(block: ResultBlock) -> PairedComparison:
    """Compare memo with source."""
    change = compare(block, "memo", "source")
    assert change is not None
    return change


def test_one_part_is_counted_plainly():
    records = random_records([("", 0)], 200)
    (block,) = collect(reversed(records))  # in any order
    assert block.methods == ["source", "tta", "memo"] and not block.is_corrupted
    row, source, memo = by_method(block)["memo"], wrong(records, "source"), wrong(records, "memo")
    assert row.points == 200 and row.error == memo.mean()
    assert (row.low, row.high) == pytest.approx(wilson_interval(int(memo.sum()), 200))
    change = to_source(row)
    assert change.helped == (source & ~memo).sum() and change.hurt == (memo & ~source).sum()
    assert change.difference == pytest.approx(memo.mean() - source.mean())
    assert change.p == mcnemar_p(change.helped, change.hurt)
    usual = paired(memo, source, np.random.default_rng(0))
    assert change.low == pytest.approx(usual.low, abs=0.01)
    assert change.high == pytest.approx(usual.high, abs=0.01)
    assert row.to_tta is not None
    assert row.to_tta.difference == pytest.approx(memo.mean() - wrong(records, "tta").mean())
    seconds = np.array([r.seconds for r in records if r.method == "memo"])
    assert row.seconds == np.median(seconds)
    assert row.model_seconds == pytest.approx(np.median(seconds) - 0.125 - 0.25)
    assert (row.views_seconds, row.predict_seconds) == (0.125, 0.25)
    assert row.mce is None and by_method(block)["source"].to_source is None


def test_parts_weigh_the_same_whatever_their_size():
    records = random_records(PARTS, (10, 40, 160))
    (block,) = collect(records)
    memo, source = (
        [wrong(records, m, corruption=c, severity=s) for c, s in PARTS] for m in ("memo", "source")
    )
    mean, low, high = mean_error(block, "memo")
    assert mean == pytest.approx(np.mean([part.mean() for part in memo])) and low < mean < high
    assert mean != pytest.approx(np.concatenate(memo).mean())
    changes = [mine.mean() - its.mean() for mine, its in zip(memo, source, strict=True)]
    assert compared(block).difference == pytest.approx(np.mean(changes))
    assert list(differences(block, "memo", "source").values()) == pytest.approx(changes)


def shared_images(is_wrong: Sequence[np.ndarray] | np.ndarray) -> ResultBlock:
    """Return a block with one part per row, all of the same images."""
    shifts = [(corruption, level) for corruption in ("fog", "snow", "frost") for level in range(1, 6)]
    records = [
        record("memo", position, not wrong, corruption=corruption, severity=level)
        for (corruption, level), part in zip(shifts, is_wrong, strict=False)
        for position, wrong in enumerate(part)
    ]
    (block,) = collect(records)
    return block


def test_parts_with_the_same_answers_have_the_interval_of_one():
    part = np.arange(60) % 3 == 0
    assert mean_error(shared_images([part] * 4), "memo")[1:] == pytest.approx(wilson_interval(20, 60))


def test_parts_without_anything_in_common_have_the_interval_of_all_points():
    # All 64 patterns of errors in six parts: the variance between images is that of independent points.
    is_wrong = np.array([(np.arange(64) >> part) % 2 == 0 for part in range(6)])
    assert mean_error(shared_images(is_wrong), "memo")[1:] == pytest.approx(wilson_interval(192, 384))


def test_where_all_is_right_the_interval_still_has_a_width():
    assert mean_error(shared_images(np.zeros((3, 50), bool)), "memo")[1:] == wilson_interval(0, 150)


@pytest.mark.parametrize("points", [50, 100, 300])
def test_a_part_without_a_right_answer_has_an_interval(points):
    everything = shared_images(np.ones((1, points), bool))
    assert mean_error(everything, "memo")[1:] == pytest.approx(wilson_interval(points, points))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        hardness = rng.beta(0.6, 1.4, 80)  # of each image, in all parts: 30 % on average
        _, low, high = mean_error(shared_images(rng.random((8, 80)) < hardness), "memo")
        covered.append(low <= 0.3 <= high)
    assert 0.92 <= np.mean(covered) <= 0.98


def test_copies_of_an_image_are_no_new_evidence():
    once = random_records([("fog", 1)], 100)
    (single,) = collect(once)
    copies = [record(r.method, r.position, r.right, corruption=c, severity=s) for r in once for c, s in PARTS]
    (several,) = collect(copies)
    one, many = compared(single), compared(several)
    assert many.points == 3 * one.points and many.helped == 3 * one.helped
    assert (many.low, many.high) == pytest.approx((one.low, one.high))


def test_comparisons_use_the_points_that_both_have():
    some = random_records(PARTS, 30)
    records = [r for r in some if r.method != "memo" or (r.position < 12 and r.severity == 5)]
    (block,) = collect(records)
    change = compared(block)
    assert change.points == 24
    expected = [
        wrong(records, "memo", corruption=c).mean()
        - wrong(records, "source", corruption=c, severity=5)[:12].mean()
        for c in ("fog", "snow")
    ]
    assert change.difference == pytest.approx(np.mean(expected))
    assert set(differences(block, "memo", "source")) == {("fog", 5), ("snow", 5)}
    apart = collect([record("source", 0, True), record("memo", 1, True)])[0]
    assert compare(apart, "memo", "source") is None


def test_clean_and_corrupted_parts_are_not_averaged():
    records = random_records([("", 0), *PARTS]) + random_records([("", 0)], dataset="other")
    blocks = collect(records)
    assert [(b.dataset, b.is_corrupted, len(b.parts)) for b in blocks] == [
        ("made", False, 1),
        ("made", True, 3),
        ("other", False, 1),
    ]


def test_the_mce_by_hand():
    records = random_records([*PARTS, ("speckle_noise", 5)])  # AlexNet has no error for the last
    (block,) = collect(records)
    clean = collect(random_records([("", 0)], seed=1))[0]
    row = by_method(block, with_mce=True, clean=clean)["memo"]
    errors = {part: wrong(records, "memo", corruption=part[0], severity=part[1]).mean() for part in PARTS}
    fog = (errors["fog", 1] + errors["fog", 5]) / (ALEXNET["fog", 1] + ALEXNET["fog", 5])
    snow = errors["snow", 5] / ALEXNET["snow", 5]
    assert row.mce == pytest.approx(100 * (fog + snow) / 2)
    base = mean_error(clean, "memo")[0]
    fog = (errors["fog", 1] + errors["fog", 5] - 2 * base) / (
        ALEXNET["fog", 1] + ALEXNET["fog", 5] - 2 * ALEXNET_CLEAN
    )
    snow = (errors["snow", 5] - base) / (ALEXNET["snow", 5] - ALEXNET_CLEAN)
    assert row.relative_mce == pytest.approx(100 * (fog + snow) / 2)
    assert by_method(block, with_mce=True)["memo"].relative_mce is None
    (validation,) = collect(random_records([("speckle_noise", 5)]))
    assert by_method(validation, with_mce=True)["memo"].mce is None
