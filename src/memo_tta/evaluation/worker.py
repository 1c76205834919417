"""The worker's side of an evaluation: the job cut into units, and the model, data and methods to run them."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from memo_tta.data.catalog import load_parts
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.errors import ConfigError
from memo_tta.evaluation.class_matching import describe_match, match_classes
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import FailedRecord, Record, SkippedPoint
from memo_tta.evaluation.runner import run
from memo_tta.methods import METHODS, Method
from memo_tta.models.classifier import Classifier
from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.zoo import load

UNIT_POINTS = 8  # per unit, if one of its methods takes one point at a time
SOURCE_UNIT_POINTS = 256  # per unit that only runs the source model


@dataclass(frozen=True)
class WorkUnit:
    """The smallest piece of work: some methods at some positions of one part of the data."""

    part: int
    methods: tuple[str, ...]
    positions: range


class WorkerContext:
    """A job's model, data and methods, loaded in the process that computes its units."""

    def __init__(self, job: EvaluationJob, classifier: Classifier | None = None):
        self.job = job
        self.classifier = classifier or load(job.model, **job.model_arguments)
        self.parts: list[tuple[Classifier, Dataset]] = []
        self.class_matches: dict[str, str] = {}  # a line about the first part of each data set, by its name
        for spec in job.data:
            for part in load_parts(spec, job.corruptions, job.severities, job.seed):
                classifier, matched = match_classes(self.classifier, part)
                chosen = matched if job.limit is None else balanced(matched, job.limit, job.seed, job.skip)
                self.parts.append((classifier, chosen))
                if part.name not in self.class_matches:
                    self.class_matches[part.name] = describe_match(self.classifier, part)
        _check_different([(part.name, part.corruption, part.severity) for _, part in self.parts])
        self.method = cache(self._build)  # by part and name

    def _build(self, part: int, name: str) -> Method[Any]:
        options = {"seed": self.job.seed, **self.job.options.get(name, {})}
        return METHODS[name](self.parts[part][0], **options)

    def units(self) -> Iterator[WorkUnit]:
        """Cut the job into units.

        Methods whose predictions do not depend on other points share units; one that takes batches gets one
        batch per unit; an online one gets a whole part, because its state carries over from batch to batch.
        """
        for index, (_, dataset) in enumerate(self.parts):
            methods = {name: self.method(index, name) for name in self.job.methods}
            single = tuple(name for name, m in methods.items() if m.points == 1 and not m.online)
            if single:
                yield from _cut(index, single, range(len(dataset)), _unit_points(methods, single))
            for name, method in methods.items():
                if name not in single:
                    size = len(dataset) if method.online else method.points
                    yield from _cut(index, (name,), range(len(dataset)), size)

    def record_count(self) -> int:
        """Return the number of records of the whole job; raise if a method does not fit the data."""
        return sum(len(unit.positions) * len(unit.methods) for unit in self.units())

    def split(self, unit: WorkUnit) -> list[WorkUnit]:
        """Split a unit into single points, unless its predictions depend on each other."""
        methods = (self.method(unit.part, name) for name in unit.methods)
        if any(method.points > 1 or method.online for method in methods):
            return [unit]
        return list(_cut(unit.part, unit.methods, unit.positions, 1))

    def is_long(self, unit: WorkUnit) -> bool:
        """Return whether the unit is a whole part of an online method."""
        return any(self.method(unit.part, name).online for name in unit.methods)

    def run(self, unit: WorkUnit) -> list[Record | SkippedPoint]:
        """Compute the records of a unit."""
        dataset = self.parts[unit.part][1]
        methods = {name: self.method(unit.part, name) for name in unit.methods}
        return list(run(dataset, methods, unit.positions, self.job.skip_bad))

    def failed_records(self, unit: WorkUnit, reason: str) -> list[FailedRecord]:
        """Return one row for each record that a failed unit should have given."""
        dataset = self.parts[unit.part][1]
        part = (dataset.name, dataset.corruption, dataset.severity)
        return [
            FailedRecord(*part, method, position, str(dataset.id(position)), reason)
            for method in unit.methods
            for position in unit.positions
        ]

    def fingerprint(self) -> str:
        """Return a digest of the model's weights."""
        return fingerprint(self.classifier.module)


def _check_different(parts: Sequence[tuple[str, str, int]]) -> None:
    """Raise if two parts have one name, under which their records could not be told apart."""
    (name, *_), times = Counter(parts).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"two data sets are named {name!r}: rename one, or evaluate them in two runs")


def _unit_points(methods: Mapping[str, Method[Any]], single: Sequence[str]) -> int:
    if single == ("source",):
        return SOURCE_UNIT_POINTS
    sizes = [methods[name].batch_points for name in single]
    return UNIT_POINTS if min(sizes) == 1 else max(sizes)


def _cut(part: int, methods: tuple[str, ...], positions: range, size: int) -> Iterator[WorkUnit]:
    for start in range(0, len(positions), size):
        yield WorkUnit(part, methods, positions[start : start + size])


FetchClassifier = Callable[[], Classifier]

_CONTEXT: dict[str, WorkerContext] = {}  # of the latest job only, by its key


def run_unit(
    job: EvaluationJob, fetch: FetchClassifier | None, device: str, unit: WorkUnit
) -> list[Record | SkippedPoint]:
    """Compute a unit in a worker process; its context is built once per job."""
    key = job.key()
    if key not in _CONTEXT:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        context = WorkerContext(job, fetch and fetch())
        context.classifier.module.to(device)
        keep_context(job, context)
    return _CONTEXT[key].run(unit)


def keep_context(job: EvaluationJob, context: WorkerContext) -> None:
    """Let units of the job that run in this process use the context instead of building their own."""
    _CONTEXT.clear()
    _CONTEXT[job.key()] = context
