"""Confidence intervals of error rates, and tests of the difference between two methods."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from memo_tta.errors import InputError

Z95 = 1.959963984540054
DRAWS, DRAWS_AT_ONCE = 10_000, 500  # in chunks, so that the counts of many distinct effects fit in memory


def wilson_interval(wrong: float, total: float, z: float = Z95) -> tuple[float, float]:
    """Return the 95 % confidence interval of the proportion wrong / total (Wilson, 1927)."""
    share = wrong / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar_p(helped: int, hurt: int) -> float:
    """Return the exact two-sided p-value of McNemar's test that helped and hurt are equally likely."""
    if helped == hurt:
        return 1.0
    changed, fewer = helped + hurt, min(helped, hurt)
    log_last = (
        math.lgamma(changed + 1)
        - math.lgamma(fewer + 1)
        - math.lgamma(changed - fewer + 1)
        - changed * math.log(2)
    )
    # Relative to the largest term of the tail, so that no binomial coefficient can overflow.
    k = np.arange(fewer, 0, -1)
    relative = 1 + np.cumprod(k / (changed - k + 1)).sum()
    return min(1.0, 2 * math.exp(log_last) * float(relative))


def bootstrap_sum(
    effects: np.ndarray,
    counts: np.ndarray,
    rng: np.random.Generator,
    draws: int = DRAWS,
    quantiles: tuple[float, float] = (0.025, 0.975),
) -> tuple[float, float]:
    """Return the bootstrap percentile interval of a sum over images; counts[i] images add effects[i] each."""
    # A resample is determined by how often it draws each effect: one multinomial draw.
    images = int(counts.sum())
    sums = [
        rng.multinomial(images, counts / images, size=min(DRAWS_AT_ONCE, draws - start)) @ effects
        for start in range(0, draws, DRAWS_AT_ONCE)
    ]
    low, high = np.quantile(np.concatenate(sums), quantiles)
    return float(low), float(high)


@dataclass(frozen=True)
class PairedComparison:
    """A method against a baseline on the same points; a negative difference favours the method."""

    points: int
    difference: float  # of the errors, as a fraction
    low: float  # 95 % interval of the difference
    high: float
    p: float  # McNemar's exact test
    helped: int  # points that only the baseline gets wrong
    hurt: int  # points that only the method gets wrong


def paired(wrong: ArrayLike, baseline_wrong: ArrayLike, rng: np.random.Generator) -> PairedComparison:
    """Compare two methods point by point; both arrays are boolean, shape (points,)."""
    after, before = np.asarray(wrong, dtype=bool), np.asarray(baseline_wrong, dtype=bool)
    check_same_points(wrong=after, baseline_wrong=before)
    points, hurt, helped = len(after), int((after & ~before).sum()), int((before & ~after).sum())
    low, high = bootstrap_sum(np.array([1, -1, 0]), np.array([hurt, helped, points - hurt - helped]), rng)
    difference = (hurt - helped) / points
    return PairedComparison(
        points, difference, low / points, high / points, mcnemar_p(helped, hurt), helped, hurt
    )


def check_same_points(**arrays: np.ndarray) -> None:
    """Raise InputError unless two arrays, given by name, have the same shape (points,)."""
    (first, a), (second, b) = arrays.items()
    if a.ndim != 1 or a.shape != b.shape or not len(a):
        raise InputError(
            f"{first} and {second}: expected two arrays of one shape (points,), got {a.shape} and {b.shape}"
        )
