"""Calibration, error by class, and mean corruption error."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from memo_tta.errors import DataError, InputError
from memo_tta.evaluation.alexnet_errors import ALEXNET, ALEXNET_CLEAN
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.statistics import check_same_points

Errors = Mapping[tuple[str, int], float]  # fractions, by corruption and severity


class ConfidenceBin(NamedTuple):
    """The points whose confidence lies in low..high, with their mean confidence and accuracy."""

    low: float
    high: float
    points: int
    confidence: float
    accuracy: float


def reliability(confidence: ArrayLike, is_correct: ArrayLike, bins: int = 15) -> list[ConfidenceBin]:
    """Return the non-empty bins of equal width over 0..1; only the last includes its upper edge.

    Both arrays have the shape (points,): the probability of the predicted class, and whether it is correct.
    """
    scores, correct = np.asarray(confidence, dtype=float), np.asarray(is_correct, dtype=bool)
    check_same_points(confidence=scores, is_correct=correct)
    # Softmax in float32 may exceed 1 by a rounding error.
    if not ((scores >= 0) & (scores <= 1 + 1e-6)).all():
        raise InputError(f"confidence: expected values in 0..1, got {scores.min():g} to {scores.max():g}")
    edges = np.arange(bins + 1) / bins
    bin_index = np.digitize(scores, edges[1:-1])
    return [
        _bin(float(edges[i]), float(edges[i + 1]), scores[bin_index == i], correct[bin_index == i])
        for i in np.unique(bin_index)
    ]


def _bin(low: float, high: float, confidence: np.ndarray, is_correct: np.ndarray) -> ConfidenceBin:
    return ConfidenceBin(low, high, len(is_correct), float(confidence.mean()), float(is_correct.mean()))


def calibration_error(confidence: ArrayLike, is_correct: ArrayLike, bins: int = 15) -> float:
    """Return the expected calibration error in 0..1: mean |accuracy - confidence|, weighted by points."""
    rows = reliability(confidence, is_correct, bins)
    gap = sum(row.points * abs(row.accuracy - row.confidence) for row in rows)
    return gap / sum(row.points for row in rows)


def calibration(block: ResultBlock, method: str) -> tuple[list[ConfidenceBin], float]:
    """Return the reliability diagram of all points of a block, and its expected calibration error."""
    pooled = block.pooled(method)
    return reliability(pooled.score, ~pooled.wrong), calibration_error(pooled.score, ~pooled.wrong)


def class_errors(target: ArrayLike, prediction: ArrayLike, classes: int) -> np.ndarray:
    """Return the error of each class, shape (classes,), NaN without points; inputs have shape (points,)."""
    true, predicted = np.asarray(target), np.asarray(prediction)
    check_same_points(target=true, prediction=predicted)
    if true.min() < 0 or true.max() >= classes:
        raise InputError(f"target: expected 0 to {classes - 1}, got {true.min()} to {true.max()}")
    points = np.bincount(true, minlength=classes)
    wrong = np.bincount(true, weights=true != predicted, minlength=classes)
    return np.divide(wrong, points, out=np.full(classes, np.nan), where=points > 0)


def errors_by_class(block: ResultBlock, method: str, classes: int) -> np.ndarray:
    """Return the error of each class over all points of a block, shape (classes,), NaN without points."""
    pooled = block.pooled(method)
    return class_errors(pooled.target, pooled.prediction, classes)


def mean_corruption_error(errors: Errors, baseline: Errors = ALEXNET) -> float:
    """Return the mCE in percent (Hendrycks & Dietterich, 2019).

    Each corruption's summed error is divided by the baseline's; both sums are over the severities present.
    """
    return _mean_ratio(errors, 0.0, baseline, 0.0)


def relative_mean_corruption_error(
    errors: Errors,
    clean_error: float,
    baseline: Errors = ALEXNET,
    baseline_clean: float = ALEXNET_CLEAN,
) -> float:
    """Return the relative mCE in percent: the mCE of the increase over the error on clean images."""
    return _mean_ratio(errors, clean_error, baseline, baseline_clean)


def _mean_ratio(errors: Errors, clean: float, baseline: Errors, baseline_clean: float) -> float:
    _check_fractions([*errors.values(), clean])
    ratios: list[float] = []
    for corruption, severities in _severities(errors, baseline).items():
        added = sum(errors[corruption, severity] - clean for severity in severities)
        baseline_added = sum(baseline[corruption, severity] - baseline_clean for severity in severities)
        ratios.append(added / baseline_added)
    return 100 * fmean(ratios)


def _severities(errors: Errors, baseline: Errors) -> dict[str, list[int]]:
    """Return the severities present of each corruption; the baseline must have all of them."""
    if not errors:
        raise DataError("corruption error: expected the errors of at least one corruption, got none")
    severities: dict[str, list[int]] = {}
    for corruption, severity in errors:
        _check_known("corruption", corruption, dict.fromkeys(name for name, _ in baseline))
        _check_known(f"severity of {corruption}", severity, [n for name, n in baseline if name == corruption])
        severities.setdefault(corruption, []).append(severity)
    return severities


def _check_known(kind: str, key: object, known: Iterable[object]) -> None:
    if key not in (known := list(known)):
        names = ", ".join(map(str, known))
        raise DataError(f"corruption error: the baseline has no {kind} {key!r}: choose from {names}")


def _check_fractions(values: Iterable[float]) -> None:
    for value in values:
        if not 0 <= value <= 1:
            raise DataError(f"corruption error: expected errors as fractions in 0..1, got {value}")
