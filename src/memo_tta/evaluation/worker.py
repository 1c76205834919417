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
from memo_tta.evaluation.runner import DataPoint, is_independent, run_points
from memo_tta.evaluation.stream_orders import ORDERS
from memo_tta.methods import METHODS, Method
from memo_tta.methods.view_method import ViewMethod
from memo_tta.models.classifier import Classifier
from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.zoo import load
from memo_tta.views.execution import cpu_execution

UNIT_POINTS = 8  # per unit, if one of its methods takes one point at a time
SOURCE_UNIT_POINTS = 256  # per unit that only runs the source model


@dataclass(frozen=True)
class WorkUnit:
    """The smallest piece of work: some methods at consecutive places of one stream."""

    stream: int  # index in the streams of the context
    methods: tuple[str, ...]
    places: range


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
        datasets = [part for _, part in self.parts]
        # In the data's own order for methods whose predictions do not depend on it, one stream for each part;
        # then in the job's order for all others.
        self.streams = [
            stream for order in ("data", job.order) for stream in ORDERS[order].streams(datasets, job.seed)
        ]
        for stream in self.streams:
            _check_alike(job.order, [self.parts[part] for part in stream.members])
        self.method = cache(self._build)  # by part and name

    def _build(self, part: int, name: str) -> Method[Any]:
        options = {"seed": self.job.seed, **self.job.options.get(name, {})}
        method = METHODS[name](self.parts[part][0], **options)
        if isinstance(method, ViewMethod):
            cpu_execution()  # loads compiled code, which is no part of the first image's time
        return method

    def units(self) -> Iterator[WorkUnit]:
        """Cut the job into units.

        Methods whose predictions do not depend on other points share units; one that takes batches gets one
        batch per unit; an online one gets a whole stream, because its state carries over from batch to batch.
        """
        for index, stream in enumerate(self.streams[len(self.parts) :], len(self.parts)):
            for part in stream.members:
                methods = {name: self.method(part, name) for name in self.job.methods}
                if single := tuple(name for name, method in methods.items() if is_independent(method)):
                    places = range(len(self.streams[part]))
                    yield from _cut(part, single, places, _unit_points(methods, single))
            for name in self.order_matters if len(stream) else ():
                method = self.method(int(stream.parts[0]), name)
                size = len(stream) if method.online else method.points
                yield from _cut(index, (name,), range(len(stream)), size)

    @property
    def order_matters(self) -> list[str]:
        """The methods whose predictions depend on the order of the points."""
        return [name for name in self.job.methods if not is_independent(self.method(0, name))]

    def record_count(self) -> int:
        """Return the number of records of the whole job; raise if a method does not fit the data."""
        return sum(len(unit.places) * len(unit.methods) for unit in self.units())

    def split(self, unit: WorkUnit) -> list[WorkUnit]:
        """Split a unit into single points, unless its predictions depend on each other."""
        if not all(map(is_independent, self._methods(unit).values())):
            return [unit]
        return list(_cut(unit.stream, unit.methods, unit.places, 1))

    def is_long(self, unit: WorkUnit) -> bool:
        """Return whether the unit is a whole stream of an online method."""
        return any(method.online for method in self._methods(unit).values())

    def run(self, unit: WorkUnit) -> list[Record | SkippedPoint]:
        """Compute the records of a unit."""
        return list(run_points(self._points(unit), self._methods(unit), self.job.skip_bad))

    def _points(self, unit: WorkUnit) -> list[DataPoint]:
        points = self.streams[unit.stream].points(unit.places)
        return [DataPoint(self.parts[part][1], position) for part, position in points]

    def _methods(self, unit: WorkUnit) -> dict[str, Method[Any]]:
        """Return the unit's methods, with the classifier that all parts of its stream share."""
        part = int(self.streams[unit.stream].parts[unit.places.start])
        return {name: self.method(part, name) for name in unit.methods}

    def failed_records(self, unit: WorkUnit, reason: str) -> list[FailedRecord]:
        """Return one row for each record that a failed unit should have given."""
        return [
            FailedRecord(
                data.name, data.corruption, data.severity, method, position, str(data.id(position)), reason
            )
            for method in unit.methods
            for data, position in self._points(unit)
        ]

    def fingerprint(self) -> str:
        """Return a digest of the model's weights."""
        return fingerprint(self.classifier.module)


def _check_different(parts: Sequence[tuple[str, str, int]]) -> None:
    """Raise if two parts have one name, under which their records could not be told apart."""
    (name, *_), times = Counter(parts).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"two data sets are named {name!r}: rename one, or evaluate them in two runs")


def _check_alike(order: str, parts: Sequence[tuple[Classifier, Dataset]]) -> None:
    """Raise if the parts of one stream need classifiers that differ."""
    kinds = {
        "crop": [classifier.preprocessing and classifier.preprocessing.resize for classifier, _ in parts],
        "classes": [part.classes and list(part.classes) for _, part in parts],
    }
    for kind, values in kinds.items():
        for (_, part), value in zip(parts, values, strict=True):
            if value != values[0]:
                raise ConfigError(
                    f"order: {order!r} makes one stream of {_title(parts[0][1])} and {_title(part)}, but the "
                    f"model needs another {kind} for each: evaluate them in two runs, or with --order iid"
                )


def _title(part: Dataset) -> str:
    return f"{part.name} {part.corruption} {part.severity}" if part.corruption else f"{part.name} (clean)"


def _unit_points(methods: Mapping[str, Method[Any]], single: Sequence[str]) -> int:
    if single == ("source",):
        return SOURCE_UNIT_POINTS
    sizes = [methods[name].batch_points for name in single]
    return UNIT_POINTS if min(sizes) == 1 else max(sizes)


def _cut(stream: int, methods: tuple[str, ...], places: range, size: int) -> Iterator[WorkUnit]:
    for start in range(0, len(places), size):
        yield WorkUnit(stream, methods, places[start : start + size])


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
