"""The figures of a report against an independent count."""

import numpy as np
import pytest

from memo_tta.evaluation.alexnet_errors import ALEXNET, ALEXNET_CLEAN
from memo_tta.evaluation.analysis import (
    calibration,
    collect,
    compare,
    differences,
    errors_by_class,
    mean_error,
    most_changed_points,
    rows,
)
from memo_tta.evaluation.metrics import calibration_error
from memo_tta.evaluation.statistics import mcnemar_p, paired, wilson_interval
from tests.runs import random_records, record

PARTS = [("fog", 1), ("fog", 5), ("snow", 5)]


def wrong(records, method, **where):
    chosen = [r for r in records if r.method == method]
    return np.array([not r.right for r in chosen if all(getattr(r, k) == v for k, v in where.items())])


def by_method(block, **settings):
    return {row.method: row for row in rows(block, **settings)}


def test_one_part_is_counted_plainly():
    records = random_records([("", 0)], 200)
    (block,) = collect(reversed(records))  # whatever the order
    assert block.methods == ["source", "tta", "memo"] and not block.corrupted
    row, source, memo = by_method(block)["memo"], wrong(records, "source"), wrong(records, "memo")
    assert row.points == 200 and row.error == memo.mean()
    assert (row.low, row.high) == pytest.approx(wilson_interval(int(memo.sum()), 200))
    assert row.to_source.helped == (source & ~memo).sum() and row.to_source.hurt == (memo & ~source).sum()
    assert row.to_source.difference == pytest.approx(memo.mean() - source.mean())
    assert row.to_source.p == mcnemar_p(row.to_source.helped, row.to_source.hurt)
    usual = paired(memo, source, np.random.default_rng(0))
    assert row.to_source.low == pytest.approx(usual.low, abs=0.01)
    assert row.to_source.high == pytest.approx(usual.high, abs=0.01)
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
    assert compare(block, "memo", "source").difference == pytest.approx(np.mean(changes))
    assert list(differences(block, "memo", "source").values()) == pytest.approx(changes)


def shared_images(answers):
    """A block with a part per row, all of the same images; what is true is wrong."""
    shifts = [(corruption, level) for corruption in ("fog", "snow", "frost") for level in range(1, 6)]
    records = [
        record("memo", position, not is_wrong, corruption=corruption, severity=level)
        for (corruption, level), part in zip(shifts, answers, strict=False)
        for position, is_wrong in enumerate(part)
    ]
    (block,) = collect(records)
    return block


def test_parts_with_the_same_answers_have_the_interval_of_one():
    part = np.arange(60) % 3 == 0
    assert mean_error(shared_images([part] * 4), "memo")[1:] == pytest.approx(wilson_interval(20, 60))


def test_parts_without_anything_in_common_have_the_interval_of_all_points():
    # Every image is wrong as often as chance has it: variance between images as among single points.
    answers = np.array([(np.arange(64) >> part) % 2 == 0 for part in range(6)])
    assert mean_error(shared_images(answers), "memo")[1:] == pytest.approx(wilson_interval(192, 384))


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
        hardness = rng.beta(0.6, 1.4, 80)  # of images, which every part shares: 30 % on average
        _, low, high = mean_error(shared_images(rng.random((8, 80)) < hardness), "memo")
        covered.append(low <= 0.3 <= high)
    assert 0.92 <= np.mean(covered) <= 0.98


def test_copies_of_an_image_are_no_new_evidence():
    once = random_records([("fog", 1)], 100)
    (single,) = collect(once)
    copies = [record(r.method, r.position, r.right, corruption=c, severity=s) for r in once for c, s in PARTS]
    (several,) = collect(copies)
    one, many = compare(single, "memo", "source"), compare(several, "memo", "source")
    assert many.points == 3 * one.points and many.helped == 3 * one.helped
    assert (many.low, many.high) == pytest.approx((one.low, one.high))


def test_comparisons_use_the_points_that_both_have():
    some = random_records(PARTS, 30)
    records = [r for r in some if r.method != "memo" or (r.position < 12 and r.severity == 5)]
    (block,) = collect(records)
    change = compare(block, "memo", "source")
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
    assert [(b.dataset, b.corrupted, len(b.parts)) for b in blocks] == [
        ("made", False, 1),
        ("made", True, 3),
        ("other", False, 1),
    ]


def test_the_mce_by_hand():
    records = random_records([*PARTS, ("speckle_noise", 5)])  # the last has no yardstick
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


def test_calibration_and_classes_are_of_all_points():
    records = random_records(PARTS)
    (block,) = collect(records)
    chosen = [r for r in records if r.method == "tta"]
    bins, error = calibration(block, "tta")
    assert error == calibration_error([r.score for r in chosen], [r.right for r in chosen])
    assert sum(b.points for b in bins) == len(chosen)
    of_class = [[not r.right for r in chosen if r.target == label] for label in range(5)]
    errors = errors_by_class(block, "tta", 6)
    assert errors[:5].tolist() == pytest.approx([np.mean(flags) for flags in of_class]) and np.isnan(
        errors[5]
    )


def test_the_most_telling_points():
    answers = {  # position: (right before, score), (right after, score), surely gained
        0: ((False, 0.9), (True, 0.8), 0.7),
        1: ((False, 0.4), (True, 0.8), 0.4),
        2: ((False, 0.9), (True, 0.95), 0.85),
        3: ((True, 0.7), (False, 0.6), -0.3),
        4: ((True, 0.9), (True, 0.99), None),
        5: ((False, 0.9), (False, 0.99), None),
    }
    records = []
    for position, (before, after, _) in answers.items():
        records.append(record("source", position, before[0], score=before[1]))
        records.append(record("memo", position, after[0], score=after[1]))
    helped, hurt = most_changed_points(collect(records)[0], "memo", "source", 2)
    assert [(point.position, pytest.approx(point.gain)) for point in helped] == [(2, 0.85), (0, 0.7)]
    assert [(point.position, pytest.approx(point.gain)) for point in hurt] == [(3, -0.3)]
    assert helped[0].target == 2 and helped[0].shift == ("", 0)
