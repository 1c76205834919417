"""Records, turned into the figures of a report."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import NamedTuple

import numpy as np

from memo_tta.evaluation.alexnet_errors import ALEXNET
from memo_tta.evaluation.metrics import (
    Bin,
    calibration_error,
    class_errors,
    mean_corruption_error,
    relative_mean_corruption_error,
    reliability,
)
from memo_tta.evaluation.records import Record
from memo_tta.evaluation.statistics import Paired, mcnemar_p, wilson_interval
from memo_tta.methods import METHODS
from memo_tta.seeding import sample_rng

DRAWS, DRAWS_AT_ONCE = 10_000, 500  # at once: so that many parts of unequal size still fit in memory


class CorruptionLevel(NamedTuple):
    """Which part of a data set; a clean one has no corruption."""

    corruption: str
    severity: int


@dataclass(frozen=True)
class PointResults:
    """What one method said of the points of a part, by position; all arrays have the shape (points,)."""

    position: np.ndarray
    target: np.ndarray
    prediction: np.ndarray
    score: np.ndarray
    seconds: np.ndarray
    views_seconds: np.ndarray
    predict_seconds: np.ndarray

    def __len__(self) -> int:
        return len(self.position)

    def take(self, indices: np.ndarray) -> "PointResults":
        return PointResults(*(getattr(self, field.name)[indices] for field in fields(self)))

    @property
    def wrong(self) -> np.ndarray:
        return self.prediction != self.target

    @property
    def error(self) -> float:
        return float(self.wrong.mean())


WHOLE_NUMBERS = ("position", "target", "prediction")
COLUMNS = {field.name: "i" if field.name in WHOLE_NUMBERS else "d" for field in fields(PointResults)}


@dataclass(frozen=True)
class ResultBlock:
    """The parts of a data set that one average is over; each part weighs the same, as in the paper."""

    dataset: str
    parts: Mapping[CorruptionLevel, Mapping[str, PointResults]]  # by method

    @property
    def methods(self) -> list[str]:
        """In the order of the table of methods."""
        found = dict.fromkeys(name for part in self.parts.values() for name in part)
        return [name for name in METHODS if name in found] + [name for name in found if name not in METHODS]

    @property
    def corrupted(self) -> bool:
        return any(shift.corruption for shift in self.parts)

    def answers(self, method: str) -> dict[CorruptionLevel, PointResults]:
        return {shift: part[method] for shift, part in self.parts.items() if method in part}

    def errors(self, method: str) -> dict[CorruptionLevel, float]:
        return {shift: answers.error for shift, answers in self.answers(method).items()}

    def pooled(self, method: str) -> PointResults:
        """The points of all parts, one part after the other."""
        parts = list(self.answers(method).values())
        return PointResults(*(np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS))


def collect(records: Iterable[Record]) -> list[ResultBlock]:
    """The blocks of a run: each data set, its clean part apart from its corrupted ones."""
    columns: dict[tuple[str, CorruptionLevel, str], list[array]] = {}
    for record in records:
        key = record.dataset, CorruptionLevel(record.corruption, record.severity), record.method
        if key not in columns:
            columns[key] = [array(kind) for kind in COLUMNS.values()]
        for column, name in zip(columns[key], COLUMNS, strict=True):
            column.append(getattr(record, name))
    parts: dict[tuple[str, bool], dict[CorruptionLevel, dict[str, PointResults]]] = {}
    for (dataset, shift, method), values in columns.items():
        block = parts.setdefault((dataset, shift.corruption != ""), {})
        block.setdefault(shift, {})[method] = _answers(values)
    return [ResultBlock(dataset, block) for (dataset, _), block in parts.items()]


def _answers(columns: Sequence[array]) -> PointResults:
    arrays = [np.frombuffer(c, kind) for c, kind in zip(columns, COLUMNS.values(), strict=True)]
    answers = PointResults(*arrays)
    return answers.take(np.argsort(answers.position, kind="stable"))


@dataclass(frozen=True)
class MethodResult:
    """One method on one block; errors are fractions, seconds are medians per point."""

    method: str
    points: int
    error: float
    low: float  # 95 % interval
    high: float
    to_source: Paired | None
    to_tta: Paired | None
    seconds: float
    views_seconds: float
    model_seconds: float
    predict_seconds: float
    mce: float | None = None  # percent
    relative_mce: float | None = None


def rows(block: ResultBlock, with_mce: bool = False, clean: ResultBlock | None = None) -> list[MethodResult]:
    """One row per method; `clean` holds the uncorrupted images that the relative mCE needs."""
    return [_row(block, method, with_mce, clean) for method in block.methods]


def _row(block: ResultBlock, method: str, with_mce: bool, clean: ResultBlock | None) -> MethodResult:
    pooled = block.pooled(method)
    mce, relative = _corruption_errors(block, method, clean) if with_mce else (None, None)
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
        relative,
    )


def mean_error(block: ResultBlock, method: str) -> tuple[float, float, float]:
    """The average error over the parts, with the 95 % Wilson interval of as many points as they are worth.

    Parts that show the same images are worth less than as many points of their own: their errors go together.
    """
    parts = list(block.answers(method).values())
    mean = fmean(part.error for part in parts)
    worth = len(parts) ** 2 / sum(1 / len(part) for part in parts)
    effects = _by_image(parts, [part.wrong for part in parts])
    variance = len(effects) * float(effects.var())
    if 0 < mean < 1 and variance > 0:  # the variance of equal numbers may be rounded to a little more than 0
        worth = min(worth, mean * (1 - mean) / variance)
    return mean, *wilson_interval(mean * worth, worth)


def compare(block: ResultBlock, method: str, baseline: str) -> Paired | None:
    """Two methods on the points that both have; the interval is from resampling whole images.

    An image that is in several parts is drawn with all of them: its corrupted copies are no new evidence.
    """
    shared = list(_shared(block, method, baseline))
    if not shared:
        return None
    changes = [mine.wrong.astype(int) - its.wrong for _, mine, its in shared]
    low, high = _resampled_sum(_by_image([mine for _, mine, _ in shared], changes))
    helped, hurt = (sum(int((change == sign).sum()) for change in changes) for sign in (-1, 1))
    difference = fmean(float(change.mean()) for change in changes)
    return Paired(sum(map(len, changes)), difference, low, high, mcnemar_p(helped, hurt), helped, hurt)


def differences(block: ResultBlock, method: str, baseline: str) -> dict[CorruptionLevel, float]:
    """What the method adds to the baseline's error, part by part, on the points that both have."""
    return {shift: mine.error - its.error for shift, mine, its in _shared(block, method, baseline)}


def _shared(
    block: ResultBlock, method: str, baseline: str
) -> Iterator[tuple[CorruptionLevel, PointResults, PointResults]]:
    """The answers of two methods to the same points, part by part."""
    for shift, part in block.parts.items():
        if method in part and baseline in part:
            positions = part[method].position, part[baseline].position
            both, mine, its = np.intersect1d(*positions, assume_unique=True, return_indices=True)
            if len(both):
                yield shift, part[method].take(mine), part[baseline].take(its)


def _by_image(parts: Sequence[PointResults], values: Sequence[np.ndarray]) -> np.ndarray:
    """What each image adds to the mean of the parts' means, over all parts that it is in."""
    shares = np.concatenate([value / (len(value) * len(parts)) for value in values])
    _, image = np.unique(np.concatenate([part.position for part in parts]), return_inverse=True)
    return np.bincount(image, weights=shares)


def _resampled_sum(effects: np.ndarray) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of a sum over images."""
    # A resample is known by how often it draws each kind of image; rounding joins equal sums.
    kinds, counts = np.unique(effects.round(14), return_counts=True)
    rng = sample_rng(0, "bootstrap")
    sums = [
        rng.multinomial(len(effects), counts / len(effects), size=DRAWS_AT_ONCE) @ kinds
        for _ in range(DRAWS // DRAWS_AT_ONCE)
    ]
    low, high = np.quantile(np.concatenate(sums), [0.025, 0.975])
    return float(low), float(high)


def _corruption_errors(
    block: ResultBlock, method: str, clean: ResultBlock | None
) -> tuple[float | None, float | None]:
    """The mCE over the corruptions that it is defined for and, with a clean part, the relative mCE."""
    found = block.errors(method)
    errors = {key: found[CorruptionLevel(*key)] for key in ALEXNET if key in found}
    if not errors:
        return None, None
    if clean is None or method not in clean.methods:
        return mean_corruption_error(errors), None
    clean_error = mean_error(clean, method)[0]
    return mean_corruption_error(errors), relative_mean_corruption_error(errors, clean_error)


def calibration(block: ResultBlock, method: str) -> tuple[list[Bin], float]:
    """The reliability diagram of all points together, and its expected calibration error."""
    pooled = block.pooled(method)
    return reliability(pooled.score, ~pooled.wrong), calibration_error(pooled.score, ~pooled.wrong)


def errors_by_class(block: ResultBlock, method: str, classes: int) -> np.ndarray:
    """Over all points together, shape (classes,); NaN for a class without points."""
    pooled = block.pooled(method)
    return class_errors(pooled.target, pooled.prediction, classes)


class ChangedPoint(NamedTuple):
    """A point whose answer a method set right or made wrong."""

    shift: CorruptionLevel
    position: int
    target: int
    gain: float  # of the true class's probability, at least; below 0 where the point was hurt


def most_changed_points(
    block: ResultBlock, method: str, baseline: str, count: int
) -> tuple[list[ChangedPoint], list[ChangedPoint]]:
    """The points most helped and those most hurt.

    Where an answer is right, its score is the true class's probability; where it is wrong, that is at
    most the smaller of the score and what the score leaves. The difference is what surely was gained.
    """
    helped: list[ChangedPoint] = []
    hurt: list[ChangedPoint] = []
    for shift, after, before in _shared(block, method, baseline):
        gain = _true_class(after) - _true_class(before)
        for chosen, found in ((before.wrong & ~after.wrong, helped), (after.wrong & ~before.wrong, hurt)):
            found += [
                ChangedPoint(shift, int(after.position[i]), int(after.target[i]), float(gain[i]))
                for i in np.flatnonzero(chosen)
            ]
    helped.sort(key=lambda point: -point.gain)
    hurt.sort(key=lambda point: point.gain)
    return helped[:count], hurt[:count]


def _true_class(answers: PointResults) -> np.ndarray:
    score = answers.score
    return np.where(answers.wrong, np.minimum(score, 1 - score), score)
