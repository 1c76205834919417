"""How sure a figure is, and whether a difference between two methods is more than luck."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from memo_tta.errors import InputError

Z95 = 1.959963984540054


def wilson_interval(wrong: float, total: float, z: float = Z95) -> tuple[float, float]:
    """The 95 % interval of a share that was measured as wrong / total (Wilson, 1927)."""
    share = wrong / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar_p(helped: int, hurt: int) -> float:
    """The exact two-sided p-value of McNemar's test: is each changed point a fair coin's toss?"""
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


class Interval(NamedTuple):
    """A difference of two errors with its bounds, all as fractions."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    wrong_a: ArrayLike,
    wrong_b: ArrayLike,
    rng: np.random.Generator,
    draws: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap of mean(wrong_a) - mean(wrong_b); both are booleans of shape (points,)."""
    points, only_a, only_b = _changed(wrong_a, wrong_b)
    # A point adds +1, -1 or 0, so a resample is known by how often it draws each of the three kinds.
    shares = np.array([only_a, only_b, points - only_a - only_b]) / points
    counts = rng.multinomial(points, shares, size=draws)
    differences = (counts[:, 0] - counts[:, 1]) / points
    low, high = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2])
    return Interval((only_a - only_b) / points, float(low), float(high))


@dataclass(frozen=True)
class Paired:
    """A method against a baseline on the same points; a difference below 0 favours the method."""

    points: int
    difference: float  # of the errors, as a fraction, with its 95 % interval
    low: float
    high: float
    p: float
    helped: int  # points that only the baseline gets wrong
    hurt: int  # points that only the method gets wrong


def paired(wrong: ArrayLike, baseline_wrong: ArrayLike, rng: np.random.Generator) -> Paired:
    """Compare two methods point by point; both are booleans of shape (points,)."""
    points, hurt, helped = _changed(wrong, baseline_wrong)
    difference, low, high = paired_bootstrap(wrong, baseline_wrong, rng)
    return Paired(points, difference, low, high, mcnemar_p(helped, hurt), helped, hurt)


def _changed(wrong_a: ArrayLike, wrong_b: ArrayLike) -> tuple[int, int, int]:
    """How many points there are, how many only a gets wrong, how many only b gets wrong."""
    a, b = np.asarray(wrong_a, dtype=bool), np.asarray(wrong_b, dtype=bool)
    if a.ndim != 1 or a.shape != b.shape or not len(a):
        raise InputError(f"paired points: expected two equal shapes (points,), got {a.shape} and {b.shape}")
    return len(a), int((a & ~b).sum()), int((b & ~a).sum())
