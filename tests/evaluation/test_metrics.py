"""Metrics against counts by hand, known properties and the published constants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memo_tta.errors import DataError, InputError
from memo_tta.evaluation.alexnet_errors import ALEXNET, ALEXNET_CLEAN
from memo_tta.evaluation.metrics import (
    ConfidenceBin,
    calibration,
    calibration_error,
    class_errors,
    errors_by_class,
    mean_corruption_error,
    relative_mean_corruption_error,
    reliability,
)
from memo_tta.evaluation.results import collect
from tests.runs import random_records

POINTS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=100)
HALF_LIKE_FOG = {("fog", level): ALEXNET["fog", level] / 2 for level in range(1, 6)}


def test_reliability_by_hand():
    rows = reliability([0.0, 0.4, 0.5, 0.9, 1.0], [False, True, True, False, True], bins=4)
    assert rows == [
        ConfidenceBin(0, 0.25, 1, 0, 0),
        ConfidenceBin(0.25, 0.5, 1, 0.4, 1),
        ConfidenceBin(0.5, 0.75, 1, 0.5, 1),
        ConfidenceBin(0.75, 1, 2, 0.95, 0.5),
    ]


def test_calibration_error_by_hand():
    sure, right = [0.0, 0.4, 0.5, 0.9, 1.0], [False, True, True, False, True]
    assert calibration_error(sure, right, bins=4) == pytest.approx((0 + 0.6 + 0.5 + 2 * 0.45) / 5)
    assert calibration_error(sure, right, bins=1) == pytest.approx(abs(2.8 - 3) / 5)


@given(POINTS, st.integers(1, 30))
def test_every_point_is_in_one_bin_that_holds_its_confidence(points, bins):
    sure, right = (np.array(column) for column in zip(*points, strict=True))
    rows = reliability(sure, right, bins)
    assert sum(row.points for row in rows) == len(points)
    for low, high, count, confidence, accuracy in rows:
        part = (sure >= low) & ((sure < high) | (high == 1))
        assert high - low == pytest.approx(1 / bins) and count == part.sum() > 0
        assert (confidence, accuracy) == pytest.approx((sure[part].mean(), right[part].mean()))


@given(POINTS, st.integers(1, 30))
def test_calibration_error_lies_between_the_overall_gap_and_one(points, bins):
    sure, right = (np.array(column) for column in zip(*points, strict=True))
    error = calibration_error(sure, right, bins)
    assert abs(sure.mean() - right.mean()) - 1e-12 <= error <= 1 + 1e-12


@given(st.lists(st.integers(0, 20), min_size=1, max_size=15, unique=True), st.integers(0, 2**32))
def test_bins_as_accurate_as_they_are_sure_have_no_calibration_error(hits, seed):
    sure = np.repeat(np.array(hits) / 20, 20)
    right = np.concatenate([np.arange(20) < hit for hit in hits])
    order = np.random.default_rng(seed).permutation(len(sure))
    assert calibration_error(sure[order], right[order]) == pytest.approx(0, abs=1e-12)
    assert calibration_error(sure, np.zeros_like(right)) == pytest.approx(sure.mean())


def test_one_and_its_rounding_error_are_in_the_last_bin():
    (row,) = reliability(np.array([1, 1 + 1e-7], dtype=np.float32), [True, False])
    assert (row.low, row.high, row.points) == (pytest.approx(14 / 15), 1, 2)


@pytest.mark.parametrize("value", [-0.1, 1.1, 50.0, float("nan")])
def test_a_confidence_outside_0_to_1_is_refused(value):
    with pytest.raises(InputError, match=r"confidence: expected values in 0\.\.1"):
        calibration_error([0.5, value], [True, True])


def test_arrays_over_other_points_are_refused():
    with pytest.raises(InputError, match=r"confidence and is_correct: .* got \(2,\) and \(1,\)"):
        reliability([0.5, 0.5], [True])
    with pytest.raises(InputError, match=r"target and prediction: .* got \(0,\) and \(0,\)"):
        class_errors([], [], 3)


def test_class_errors_by_hand():
    errors = class_errors([0, 0, 0, 0, 2, 2, 3], [0, 1, 2, 0, 2, 2, 0], classes=5)
    np.testing.assert_array_equal(errors, [0.5, np.nan, 0, 1, np.nan])


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=80))
def test_class_errors_weighed_by_points_are_the_error(pairs):
    label, prediction = np.array(pairs).T
    errors, points = class_errors(label, prediction, 9), np.bincount(label, minlength=9)
    assert errors.shape == (9,) and (np.isnan(errors) == (points == 0)).all()
    assert np.nansum(errors * points) / len(pairs) == pytest.approx((label != prediction).mean())


def test_calibration_and_classes_are_of_all_points():
    records = random_records([("fog", 1), ("fog", 5), ("snow", 5)])
    (block,) = collect(records)
    chosen = [r for r in records if r.method == "tta"]
    bins, error = calibration(block, "tta")
    assert error == calibration_error([r.score for r in chosen], [r.right for r in chosen])
    assert sum(b.points for b in bins) == len(chosen)
    of_class = [[not r.right for r in chosen if r.target == target] for target in range(5)]
    errors = errors_by_class(block, "tta", 6)
    assert errors[:5].tolist() == pytest.approx([np.mean(flags) for flags in of_class]) and np.isnan(
        errors[5]
    )


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_outside_the_classes_is_refused(label):
    with pytest.raises(InputError, match="target: expected 0 to 2"):
        class_errors([0, label], [0, 0], classes=3)


def test_mean_corruption_error_by_hand():
    errors = {("fog", level): 0.4 for level in range(1, 6)}
    errors |= {("snow", level): share for level, share in enumerate((0.3, 0.5, 0.5, 0.6, 0.7), start=1)}
    fog = 2.0 / 4.09662  # AlexNet: 0.67474 + 0.76050 + 0.84378 + 0.87260 + 0.94500
    snow = 2.6 / 4.33408  # AlexNet: 0.71726 + 0.88392 + 0.86468 + 0.91870 + 0.94952
    assert mean_corruption_error(errors) == pytest.approx(100 * (fog + snow) / 2)
    assert mean_corruption_error(errors) == pytest.approx(54.405, abs=0.001)


def test_relative_mean_corruption_error_by_hand():
    errors = {("fog", level): 0.4 for level in range(1, 6)}
    errors |= {("snow", level): share for level, share in enumerate((0.3, 0.5, 0.5, 0.6, 0.7), start=1)}
    fog = (2.0 - 5 * 0.25) / (4.09662 - 5 * 0.43478)
    snow = (2.6 - 5 * 0.25) / (4.33408 - 5 * 0.43478)
    assert relative_mean_corruption_error(errors, 0.25) == pytest.approx(100 * (fog + snow) / 2)


def test_missing_levels_are_left_out_of_both_sums():
    errors = {("fog", 1): 0.3, ("fog", 5): 0.5, ("contrast", 3): 0.4}
    expected = 100 * (0.8 / (0.67474 + 0.945) + 0.4 / 0.88874) / 2
    assert mean_corruption_error(errors) == pytest.approx(expected)
    relative = (0.8 - 2 * 0.2) / (0.67474 + 0.945 - 2 * 0.43478), (0.4 - 0.2) / (0.88874 - 0.43478)
    assert relative_mean_corruption_error(errors, 0.2) == pytest.approx(100 * sum(relative) / 2)


def test_alexnet_is_its_own_yardstick():
    assert mean_corruption_error(ALEXNET) == pytest.approx(100)
    assert relative_mean_corruption_error(ALEXNET, ALEXNET_CLEAN) == pytest.approx(100)
    assert mean_corruption_error(HALF_LIKE_FOG) == pytest.approx(50)


def test_another_baseline_may_have_other_corruptions():
    errors, baseline = {("rain", 1): 0.3}, {("rain", 1): 0.6}
    assert mean_corruption_error(errors, baseline) == pytest.approx(50)
    assert relative_mean_corruption_error(errors, 0.1, baseline, 0.2) == pytest.approx(50)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ({}, "expected the errors of at least one corruption, got none"),
        (
            {**HALF_LIKE_FOG, ("rain", 1): 0.3},
            "no corruption 'rain': choose from gaussian_.*fog.*jpeg",
        ),
        ({("fog", 6): 0.3}, "no severity of fog 6: choose from 1, 2, 3, 4, 5"),
        ({("fog", 1): 43.5}, r"expected errors as fractions in 0\.\.1, got 43\.5"),
        ({("fog", 1): float("nan")}, r"expected errors as fractions in 0\.\.1, got nan"),
    ],
)
def test_errors_that_cannot_be_compared_are_refused(errors, message):
    with pytest.raises(DataError, match=message):
        mean_corruption_error(errors)
    with pytest.raises(DataError, match=message):
        relative_mean_corruption_error(errors, 0.2)


def test_a_clean_error_in_percent_is_refused():
    with pytest.raises(DataError, match=r"fractions in 0\.\.1, got 23\.9"):
        relative_mean_corruption_error(HALF_LIKE_FOG, 23.9)


def test_alexnets_errors_are_the_published_ones(golden):
    published = golden.json("constants/alexnet_errors")
    assert list(dict.fromkeys(corruption for corruption, _ in ALEXNET)) == published["order"]
    for corruption, errors in published["per_level"].items():
        mine = [ALEXNET[corruption, level] for level in range(1, 6)]
        assert mine == errors
        assert np.mean(mine) == pytest.approx(published["average"][corruption], abs=1e-6)
    assert len(ALEXNET) == 75


def test_alexnets_errors_are_counts_of_the_50000_images_and_grow_over_clean():
    counts = np.array([ALEXNET_CLEAN, *ALEXNET.values()]) * 50_000
    assert np.abs(counts - counts.round()).max() < 1e-6
    assert round(100 * ALEXNET_CLEAN, 1) == 43.5 and min(ALEXNET.values()) > ALEXNET_CLEAN
