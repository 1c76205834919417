"""Error rates with confidence intervals, and paired comparisons of methods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.evaluation.alexnet_errors import ALEXNET
from memo_tta.evaluation.metrics import mean_corruption_error, relative_mean_corruption_error
from memo_tta.evaluation.results import PointResults, ResultBlock
from memo_tta.evaluation.statistics import PairedComparison, bootstrap_sum, mcnemar_p, wilson_interval
from memo_tta.seeding import sample_rng


@dataclass(frozen=True)
class MethodResult:
    """One method on one block; errors are fractions, seconds are medians per point."""

    method: str
    points: int
    error: float
    low: float  # 95 % interval of the error
    high: float
    to_source: PairedComparison | None
    to_tta: PairedComparison | None
    seconds: float
    views_seconds: float
    model_seconds: float
    predict_seconds: float
    mce: float | None = None  # percent
    relative_mce: float | None = None


ResultTable = tuple[ResultBlock, Sequence[MethodResult]]  # a block and one row per method


def method_results(
    block: ResultBlock, with_mce: bool = False, clean: ResultBlock | None = None
) -> list[MethodResult]:
    """Return one row per method; the relative mCE needs the `clean` results of the same data."""
    return [_method_result(block, method, with_mce, clean) for method in block.methods]


def _method_result(
    block: ResultBlock, method: str, with_mce: bool, clean: ResultBlock | None
) -> MethodResult:
    pooled = block.pooled(method)
    mce, relative_mce = _corruption_errors(block, method, clean) if with_mce else (None, None)
    return MethodResult(
        method,
        len(pooled),
        *mean_error(block, method),
        None if method == "source" else compare(block, method, "source"),
        None if method in ("source", "tta") else compare(block, method, "tta"),
        float(np.median(pooled.seconds)),
        float(np.median(pooled.views_seconds)),
        float(np.median(pooled.seconds - pooled.views_seconds - pooled.predict_seconds)),
        float(np.median(pooled.predict_seconds)),
        mce,
        relative_mce,
    )


def mean_error(block: ResultBlock, method: str) -> tuple[float, float, float]:
    """Return the mean error over the parts and its 95 % Wilson interval, at the effective number of points.

    Corrupted copies of the same images have correlated errors, so they count as fewer than as many
    independent points.
    """
    parts = list(block.results(method).values())
    mean = fmean(part.error for part in parts)
    effective_points = len(parts) ** 2 / sum(1 / len(part) for part in parts)
    effects = _effects_by_image(parts, [part.wrong for part in parts])
    variance = len(effects) * float(effects.var())
    if 0 < mean < 1 and variance > 0:  # rounding can make the variance of equal numbers slightly positive
        effective_points = min(effective_points, mean * (1 - mean) / variance)
    return mean, *wilson_interval(mean * effective_points, effective_points)


def compare(block: ResultBlock, method: str, baseline: str) -> PairedComparison | None:
    """Compare two methods on the points that both have; None if they share no points.

    The bootstrap resamples whole images: an image is drawn with all of its corrupted copies, which are not
    independent evidence.
    """
    shared = list(shared_results(block, method, baseline))
    if not shared:
        return None
    changes = [results.wrong.astype(int) - reference.wrong for _, results, reference in shared]
    by_image = _effects_by_image([results for _, results, _ in shared], changes)
    effects, counts = np.unique(by_image.round(14), return_counts=True)  # rounding joins equal sums
    low, high = bootstrap_sum(effects, counts, sample_rng(0, "bootstrap"))
    helped, hurt = (sum(int((change == sign).sum()) for change in changes) for sign in (-1, 1))
    difference = fmean(float(change.mean()) for change in changes)
    return PairedComparison(
        sum(map(len, changes)), difference, low, high, mcnemar_p(helped, hurt), helped, hurt
    )


def differences(block: ResultBlock, method: str, baseline: str) -> dict[CorruptionLevel, float]:
    """Return the method's error minus the baseline's on each part, over the points that both have."""
    return {
        shift: results.error - reference.error
        for shift, results, reference in shared_results(block, method, baseline)
    }


def shared_results(
    block: ResultBlock, method: str, baseline: str
) -> Iterator[tuple[CorruptionLevel, PointResults, PointResults]]:
    """Yield, for each part, the results of both methods on the points that both have."""
    for shift, part in block.parts.items():
        if method in part and baseline in part:
            positions = part[method].position, part[baseline].position
            shared, *indices = np.intersect1d(*positions, assume_unique=True, return_indices=True)
            if len(shared):
                yield shift, part[method].take(indices[0]), part[baseline].take(indices[1])


def _effects_by_image(parts: Sequence[PointResults], values: Sequence[np.ndarray]) -> np.ndarray:
    """Return each image's contribution to the mean of the parts' means, shape (images,)."""
    shares = np.concatenate([value / (len(value) * len(parts)) for value in values])
    _, image = np.unique(np.concatenate([part.position for part in parts]), return_inverse=True)
    return np.bincount(image, weights=shares)


def _corruption_errors(
    block: ResultBlock, method: str, clean: ResultBlock | None
) -> tuple[float | None, float | None]:
    """Return the mCE over the corruptions that AlexNet was tested on and, given `clean`, the relative mCE."""
    found = block.errors(method)
    errors = {key: found[CorruptionLevel(*key)] for key in ALEXNET if key in found}
    if not errors:
        return None, None
    if clean is None or method not in clean.methods:
        return mean_corruption_error(errors), None
    clean_error = mean_error(clean, method)[0]
    return mean_corruption_error(errors), relative_mean_corruption_error(errors, clean_error)
