"""Run methods over labelled points."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.statistics import wilson_interval
from memo_tta.methods import Method, Prediction
from memo_tta.seeding import SampleId


@dataclass(frozen=True)
class Record:
    """What one method said of one point."""

    dataset: str
    sample: SampleId
    method: str
    label: int
    prediction: Prediction
    seconds: float

    @property
    def right(self) -> bool:
        return self.prediction.index == self.label


def run(dataset: Dataset, methods: Mapping[str, Method[Any]]) -> Iterator[Record]:
    """Point by point, method by method; views depend on the sample's id alone."""
    for sample in dataset:
        for name, method in methods.items():
            began = perf_counter()
            prediction = method.predict(sample.image, sample_id=sample.id)
            yield Record(dataset.name, sample.id, name, sample.label, prediction, perf_counter() - began)


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


def summarise(records: list[Record]) -> list[Summary]:
    """One row per data set and method, in the order of their first record."""
    rows = []
    for dataset, method in dict.fromkeys((r.dataset, r.method) for r in records):
        part = [r for r in records if (r.dataset, r.method) == (dataset, method)]
        wrong = sum(not r.right for r in part)
        low, high = wilson_interval(wrong, len(part))
        seconds = float(np.median([r.seconds for r in part]))
        rows.append(Summary(dataset, method, len(part), wrong / len(part), low, high, seconds))
    return rows


def balanced(dataset: Dataset, count: int) -> Dataset:
    """The first `count` points that are spread evenly over the classes."""
    each = -(-count // len(dataset.labels))
    chosen = np.concatenate([np.flatnonzero(dataset.y == c)[:each] for c in range(len(dataset.labels))])
    return dataset.take(np.sort(chosen)[:count])
