"""Records, summed up by data set and method."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.record import Record
from memo_tta.evaluation.statistics import wilson_interval
from memo_tta.seeding import sample_rng


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


def balanced(dataset: Dataset, count: int, seed: int = 0) -> Dataset:
    """`count` points, as evenly spread over the classes as can be; the same for the same seed."""
    order = sample_rng(seed, "balanced").permutation(len(dataset))
    labels = dataset.y[order]
    turn = np.empty(len(order), int)  # a point's turn within its class
    for label in np.unique(labels):
        turn[labels == label] = np.arange((labels == label).sum())
    chosen = order[np.argsort(turn, kind="stable")[:count]]
    return dataset.take(np.sort(chosen))
