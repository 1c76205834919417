"""Intervals and tests against SciPy, brute force and simulation."""

from math import comb

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binomtest

from memo_tta.errors import InputError
from memo_tta.evaluation.statistics import bootstrap_sum, mcnemar_p, paired, wilson_interval

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def two_methods(points: int, a_wrong: float, b_wrong: float, draw: np.random.Generator) -> list[np.ndarray]:
    """Return the errors of two methods that fail on the same hard points, as methods with one model do."""
    hardness = draw.random(points)
    return [hardness + 0.1 * draw.random(points) > 1 - share for share in (a_wrong, b_wrong)]


def bootstrap_interval(
    a: np.ndarray, b: np.ndarray, draw: np.random.Generator, draws: int, level: float
) -> tuple[float, float]:
    """Return the interval of mean(a) - mean(b)."""
    effects, counts = np.unique((a.astype(int) - b) / len(a), return_counts=True)
    return bootstrap_sum(effects, counts, draw, draws, ((1 - level) / 2, (1 + level) / 2))


@given(st.integers(1, 5000), st.data())
def test_wilson_interval_is_scipys(total, data):
    wrong = data.draw(st.integers(0, total))
    expected = binomtest(wrong, total).proportion_ci(method="wilson")
    assert wilson_interval(wrong, total) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.integers(0, 3000), st.integers(0, 3000))
@example(0, 1)
@example(1, 0)
@example(7, 8)
@example(24_700, 25_300)
@example(30_000, 29_000)
@example(40_000, 9_000)
def test_mcnemar_is_the_binomial_test(helped, hurt):
    expected = binomtest(min(helped, hurt), helped + hurt).pvalue if helped + hurt else 1.0
    assert mcnemar_p(helped, hurt) == pytest.approx(expected, rel=1e-8, abs=1e-250)
    assert mcnemar_p(hurt, helped) == mcnemar_p(helped, hurt)


@pytest.mark.parametrize(
    ("helped", "hurt", "p"),
    [(0, 0, 1), (5, 5, 1), (1, 0, 1), (5, 0, 2 / 2**5), (1, 9, 2 * (1 + 10) / 2**10)],
)
def test_mcnemar_of_a_few_points_is_the_count_of_tosses(helped, hurt, p):
    assert mcnemar_p(helped, hurt) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(("helped", "hurt"), [(10, 1065), (500, 2400), (1480, 1520)])
def test_mcnemar_is_the_sum_of_whole_numbers(helped, hurt):
    # Of the first, scipy 1.17 says 0.
    tail = sum(comb(helped + hurt, k) for k in range(min(helped, hurt) + 1))
    assert mcnemar_p(helped, hurt) == pytest.approx(2 * tail / 2 ** (helped + hurt), rel=1e-10, abs=0)


def test_no_p_value_exceeds_one():
    assert max(mcnemar_p(k, k + 1) for k in range(300)) == 1


def test_the_bootstrap_is_that_of_resampled_points():
    a, b = two_methods(300, 0.30, 0.36, rng())
    chosen = rng().integers(0, 300, size=(20_000, 300))
    plain = a[chosen].mean(axis=1) - b[chosen].mean(axis=1)
    for level in (0.5, 0.95):
        interval = bootstrap_interval(a, b, rng(), draws=20_000, level=level)
        expected = np.quantile(plain, [(1 - level) / 2, (1 + level) / 2])
        assert interval == pytest.approx(tuple(expected), abs=1.01 / 300)
    assert paired(a, b, rng()).difference == pytest.approx(a.mean() - b.mean(), abs=1e-15)


def test_the_bootstrap_of_many_points_is_the_normal_interval():
    wrong_a, wrong_b = two_methods(50_000, 0.30, 0.32, rng())
    result = paired(wrong_a, wrong_b, rng())
    each = wrong_a.astype(float) - wrong_b
    half = 1.959964 * each.std() / np.sqrt(50_000)
    expected = result.difference - half, result.difference + half
    assert (result.low, result.high) == pytest.approx(expected, abs=0.05 * half)


def test_a_95_percent_interval_holds_the_truth_about_as_often():
    draw, held = rng(), 0
    for _ in range(300):
        kind = draw.random(400)
        only_a, only_b, both = kind < 0.08, (kind >= 0.08) & (kind < 0.20), kind > 0.7
        low, high = bootstrap_interval(only_a | both, only_b | both, draw, draws=1000, level=0.95)
        held += low <= 0.08 - 0.12 <= high
    assert 0.90 <= held / 300 <= 0.99


@given(PAIRS, st.integers(0, 2**32))
def test_an_interval_holds_its_difference(pairs, seed):
    a, b = np.array(pairs).T
    result = paired(a, b, np.random.default_rng(seed))
    assert -1 <= result.low <= result.difference <= result.high <= 1


@given(PAIRS)
def test_swapping_the_methods_changes_the_sign(pairs):
    wrong, baseline = np.array(pairs).T
    there, back = paired(wrong, baseline, rng()), paired(baseline, wrong, rng())
    assert (there.helped, there.hurt, there.difference) == (back.hurt, back.helped, -back.difference)
    assert (there.points, there.p) == (back.points, back.p)
    # The draws differ, so the bounds agree up to the bootstrap's own noise and one step of the difference,
    # which is 2 / points where the methods disagree on every point.
    noise = 0.2 * np.std(wrong.astype(float) - baseline) / np.sqrt(len(pairs)) + 2.01 / len(pairs)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=noise)


def test_paired_counts_what_the_method_helped_and_hurt():
    baseline = np.array([True] * 6 + [False] * 4)
    wrong = np.array([False] * 5 + [True] * 2 + [False] * 3)
    result = paired(wrong, baseline, rng())
    assert (result.points, result.helped, result.hurt) == (10, 5, 1)
    assert result.difference == pytest.approx(-0.4)
    assert result.p == pytest.approx(2 * (1 + 6) / 2**6)
    sums = bootstrap_sum(np.array([1, -1, 0]), np.array([1, 5, 4]), rng())
    assert (result.low, result.high) == (sums[0] / 10, sums[1] / 10)


def test_equal_methods_have_no_difference_and_no_doubt():
    wrong = np.arange(50) % 3 == 0
    result = paired(wrong, wrong, rng())
    assert (result.difference, result.low, result.high, result.p) == (0, 0, 0, 1)


@pytest.mark.parametrize(("a", "b"), [([True], [True, False]), ([], []), ([[True]], [[True]])])
def test_points_that_do_not_pair_are_refused(a, b):
    with pytest.raises(InputError, match="wrong and baseline_wrong: expected two arrays of one shape"):
        paired(a, b, rng())
