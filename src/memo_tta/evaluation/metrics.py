"""What an error rate hides: calibration, the classes, and the kinds of corruption."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from memo_tta.errors import DataError, InputError
from memo_tta.evaluation.alexnet_errors import ALEXNET, ALEXNET_CLEAN

Errors = Mapping[tuple[str, int], float]


class Bin(NamedTuple):
    """The points whose confidence is in low..high, with their mean confidence and accuracy."""

    low: float
    high: float
    points: int
    confidence: float
    accuracy: float


def reliability(confidence: ArrayLike, right: ArrayLike, bins: int = 15) -> list[Bin]:
    """Equal-width bins over 0..1, each without its upper edge but the last; empty bins are left out.

    Both arrays have the shape (points,): the probability of the predicted class, and whether it is right.
    """
    sure, hit = np.asarray(confidence, dtype=float), np.asarray(right, dtype=bool)
    _check_same_points(confidence=sure, right=hit)
    # Softmax in float32 may exceed 1 by a rounding error.
    if not ((sure >= 0) & (sure <= 1 + 1e-6)).all():
        raise InputError(f"confidence: expected values in 0..1, got {sure.min():g} to {sure.max():g}")
    edges = np.arange(bins + 1) / bins
    place = np.digitize(sure, edges[1:-1])
    return [
        _bin(float(edges[i]), float(edges[i + 1]), sure[place == i], hit[place == i])
        for i in np.unique(place)
    ]


def _bin(low: float, high: float, confidence: np.ndarray, right: np.ndarray) -> Bin:
    return Bin(low, high, len(right), float(confidence.mean()), float(right.mean()))


def calibration_error(confidence: ArrayLike, right: ArrayLike, bins: int = 15) -> float:
    """The expected calibration error in 0..1: |accuracy - confidence| over the bins, weighed by points."""
    rows = reliability(confidence, right, bins)
    gap = sum(row.points * abs(row.accuracy - row.confidence) for row in rows)
    return gap / sum(row.points for row in rows)


def class_errors(target: ArrayLike, prediction: ArrayLike, classes: int) -> np.ndarray:
    """The error of each class, shape (classes,), NaN without points; labels have the shape (points,)."""
    true, said = np.asarray(target), np.asarray(prediction)
    _check_same_points(target=true, prediction=said)
    if true.min() < 0 or true.max() >= classes:
        raise InputError(f"target: expected 0 to {classes - 1}, got {true.min()} to {true.max()}")
    points = np.bincount(true, minlength=classes)
    wrong = np.bincount(true, weights=true != said, minlength=classes)
    return np.divide(wrong, points, out=np.full(classes, np.nan), where=points > 0)


def mean_corruption_error(errors: Errors, baseline: Errors = ALEXNET) -> float:
    """The mCE in percent (Hendrycks & Dietterich, 2019) of error fractions by (corruption, level).

    Each corruption's summed error is divided by the baseline's; where levels are missing, both sums are
    over the levels present.
    """
    return _mean_ratio(errors, 0.0, baseline, 0.0)


def relative_mean_corruption_error(
    errors: Errors,
    clean_error: float,
    baseline: Errors = ALEXNET,
    baseline_clean: float = ALEXNET_CLEAN,
) -> float:
    """The relative mCE in percent: as the mCE, of what corruption adds to the error on clean images."""
    return _mean_ratio(errors, clean_error, baseline, baseline_clean)


def _mean_ratio(errors: Errors, clean: float, baseline: Errors, baseline_clean: float) -> float:
    _check_fractions([*errors.values(), clean])
    ratios = []
    for corruption, levels in _levels(errors, baseline).items():
        added = sum(errors[corruption, level] - clean for level in levels)
        baseline_added = sum(baseline[corruption, level] - baseline_clean for level in levels)
        ratios.append(added / baseline_added)
    return 100 * fmean(ratios)


def _levels(errors: Errors, baseline: Errors) -> dict[str, list[int]]:
    """The levels present of each corruption, all of which the baseline must have."""
    if not errors:
        raise DataError("corruption error: expected the errors of at least one corruption, got none")
    levels: dict[str, list[int]] = {}
    for corruption, level in errors:
        _check_known("corruption", corruption, dict.fromkeys(name for name, _ in baseline))
        _check_known(f"level of {corruption}", level, [n for name, n in baseline if name == corruption])
        levels.setdefault(corruption, []).append(level)
    return levels


def _check_known(kind: str, key: object, known: Iterable[object]) -> None:
    if key not in (known := list(known)):
        names = ", ".join(map(str, known))
        raise DataError(f"corruption error: the baseline has no {kind} {key!r}, it has {names}")


def _check_fractions(values: Iterable[float]) -> None:
    for value in values:
        if not 0 <= value <= 1:
            raise DataError(f"corruption error: expected errors as fractions in 0..1, got {value}")


def _check_same_points(**arrays: np.ndarray) -> None:
    (first, a), (second, b) = arrays.items()
    if a.ndim != 1 or a.shape != b.shape or not len(a):
        raise InputError(
            f"{first} and {second}: expected two equal shapes (points,), got {a.shape} and {b.shape}"
        )
