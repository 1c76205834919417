"""The records of a run as arrays, grouped by data set, corruption level and method."""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.evaluation.records import Record
from memo_tta.methods import METHODS


@dataclass(frozen=True)
class PointResults:
    """One method's results on one part of the data, sorted by position; all arrays have shape (points,)."""

    position: np.ndarray
    target: np.ndarray
    prediction: np.ndarray
    score: np.ndarray
    seconds: np.ndarray
    views_seconds: np.ndarray
    predict_seconds: np.ndarray
    shift: np.ndarray  # NaN if the model has no batch norm

    def __len__(self) -> int:
        return len(self.position)

    def take(self, indices: np.ndarray) -> "PointResults":
        """Return the results at these indices, in this order."""
        return PointResults(*(getattr(self, name)[indices] for name in TYPECODES))

    @property
    def wrong(self) -> np.ndarray:
        """Whether each prediction differs from its target."""
        return self.prediction != self.target

    @property
    def error(self) -> float:
        """The error rate in 0..1."""
        return float(self.wrong.mean())


NOT_MEASURED: Any = math.nan
INTEGER_FIELDS = ("position", "target", "prediction")
TYPECODES = {field.name: "i" if field.name in INTEGER_FIELDS else "d" for field in fields(PointResults)}


@dataclass(frozen=True)
class ResultBlock:
    """The parts of a data set that are averaged; each part has the same weight, as in the paper."""

    dataset: str
    parts: Mapping[CorruptionLevel, Mapping[str, PointResults]]  # results by method

    @property
    def methods(self) -> list[str]:
        """Names of the methods with results, in the order of the table of methods."""
        found = dict.fromkeys(name for part in self.parts.values() for name in part)
        return [name for name in METHODS if name in found] + [name for name in found if name not in METHODS]

    @property
    def is_corrupted(self) -> bool:
        return any(shift.corruption for shift in self.parts)

    def results(self, method: str) -> dict[CorruptionLevel, PointResults]:
        """Return the method's results on each part that has any."""
        return {shift: part[method] for shift, part in self.parts.items() if method in part}

    def errors(self, method: str) -> dict[CorruptionLevel, float]:
        """Return the method's error rate on each part that has results."""
        return {shift: results.error for shift, results in self.results(method).items()}

    @property
    def median_shift(self) -> float | None:
        """The median shift of all points; None if the model has no batch norm."""
        shifts = [next(iter(part.values())).shift for part in self.parts.values()]
        median = float(np.median(np.concatenate(shifts)))
        return None if math.isnan(median) else median

    def pooled(self, method: str) -> PointResults:
        """Concatenate the method's results on all parts."""
        parts = list(self.results(method).values())
        return PointResults(*(np.concatenate([getattr(part, name) for part in parts]) for name in TYPECODES))


def collect(records: Iterable[Record]) -> list[ResultBlock]:
    """Group records into blocks: the clean and the corrupted parts of each data set."""
    columns: dict[tuple[str, CorruptionLevel, str], list[array[int] | array[float]]] = {}
    for record in records:
        key = record.dataset, CorruptionLevel(record.corruption, record.severity), record.method
        if key not in columns:
            columns[key] = [array(code) for code in TYPECODES.values()]
        for column, name in zip(columns[key], TYPECODES, strict=True):
            value: Any = getattr(record, name)
            column.append(NOT_MEASURED if value is None else value)
    blocks: dict[tuple[str, bool], dict[CorruptionLevel, dict[str, PointResults]]] = {}
    for (dataset, shift, method), values in columns.items():
        parts = blocks.setdefault((dataset, shift.corruption != ""), {})
        parts.setdefault(shift, {})[method] = _point_results(values)
    return [ResultBlock(dataset, parts) for (dataset, _), parts in blocks.items()]


def _point_results(columns: "Sequence[array[int] | array[float]]") -> PointResults:
    arrays = [np.frombuffer(column, code) for column, code in zip(columns, TYPECODES.values(), strict=True)]
    results = PointResults(*arrays)
    return results.take(np.argsort(results.position, kind="stable"))
