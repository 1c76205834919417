"""Records, summed up by data set and method."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memo_tta.evaluation.records import Record
from memo_tta.evaluation.statistics import wilson_interval


@dataclass(frozen=True)
class Summary:
    """Error of one method on one data set, with its 95 % interval and its price."""

    dataset: str
    method: str
    points: int
    error: float
    low: float
    high: float
    seconds: float  # per point, median


def summarise(records: Iterable[Record]) -> list[Summary]:
    """One row per data set and method, in the order of their first record."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.dataset, record.method), []).append(record)
    rows = []
    for (dataset, method), part in groups.items():
        wrong = sum(not record.right for record in part)
        low, high = wilson_interval(wrong, len(part))
        seconds = float(np.median([record.seconds for record in part]))
        rows.append(Summary(dataset, method, len(part), wrong / len(part), low, high, seconds))
    return rows
