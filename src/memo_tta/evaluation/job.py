"""What is to be evaluated, and how it is cut into pieces of work."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from memo_tta.data.catalog import load_parts, whereabouts
from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.fitting import fit
from memo_tta.evaluation.record import Record
from memo_tta.evaluation.runner import SetAside, Skipped, run
from memo_tta.evaluation.summary import balanced
from memo_tta.methods import METHODS, Method
from memo_tta.models.classifier import Classifier
from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.zoo import load

BLOCK = 8  # points of a unit that adapts
SOURCE_BLOCK = 256  # of one that only predicts


@dataclass(frozen=True, kw_only=True)
class Job:
    """Data, model and methods, and all that decides the records."""

    data: Sequence[str]
    model: str
    weights: str | None = None
    num_classes: int | None = None
    methods: Sequence[str] = ("source", "memo")
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by method
    corruptions: Sequence[str] | None = None
    severities: Sequence[int] | None = None
    limit: int | None = None
    seed: int = 0
    skip_bad: bool = False

    def facts(self) -> dict[str, Any]:
        """As JSON gives it back."""
        return json.loads(json.dumps(asdict(self)))

    def anywhere(self) -> tuple["Job", list[Path]]:
        """The same job whatever the working directory, and where on disk its data lies."""
        places = [whereabouts(spec) for spec in self.data]
        return replace(self, data=[spec for spec, _ in places]), [
            path for _, paths in places for path in paths
        ]

    def key(self) -> str:
        return json.dumps(self.facts(), sort_keys=True)


@dataclass(frozen=True)
class Unit:
    """Work for one worker: methods at some places of one part of the data."""

    part: int
    methods: tuple[str, ...]
    places: range


class Replica:
    """A job's model, data and methods, in the process that works on it."""

    def __init__(self, job: Job, classifier: Classifier | None = None):
        self.job = job
        self.classifier = classifier or load(job.model, job.weights, job.num_classes)
        self.parts: list[tuple[Classifier, Dataset]] = []
        for spec in job.data:
            for part in load_parts(spec, job.corruptions, job.severities, job.seed):
                chosen = part if job.limit is None else balanced(part, job.limit, job.seed)
                self.parts.append(fit(self.classifier, chosen))
        self._methods = cache(self._build)

    def _build(self, part: int, name: str) -> Method[Any]:
        options = {"seed": self.job.seed, **self.job.options.get(name, {})}
        return METHODS[name](self.parts[part][0], **options)

    def units(self) -> Iterator[Unit]:
        """Methods of one point together, in blocks; batches one by one; an online method in one piece."""
        for index, (_, dataset) in enumerate(self.parts):
            methods = {name: self._methods(index, name) for name in self.job.methods}
            single = tuple(name for name, m in methods.items() if m.points == 1 and not m.online)
            if single:
                size = SOURCE_BLOCK if single == ("source",) else BLOCK
                yield from _blocks(index, single, range(len(dataset)), size)
            for name, method in methods.items():
                if name not in single:
                    size = len(dataset) if method.online else method.points
                    yield from _blocks(index, (name,), range(len(dataset)), size)

    def split(self, unit: Unit) -> list[Unit]:
        """Point by point, unless what is said of one depends on others."""
        methods = (self._methods(unit.part, name) for name in unit.methods)
        if any(method.points > 1 or method.online for method in methods):
            return [unit]
        return list(_blocks(unit.part, unit.methods, unit.places, 1))

    def is_long(self, unit: Unit) -> bool:
        """An online method's whole part."""
        return any(self._methods(unit.part, name).online for name in unit.methods)

    def run(self, unit: Unit) -> list[Record | Skipped]:
        dataset = self.parts[unit.part][1]
        methods = {name: self._methods(unit.part, name) for name in unit.methods}
        return list(run(dataset, methods, unit.places, self.job.skip_bad))

    def set_aside(self, unit: Unit, reason: str) -> list[SetAside]:
        """In place of the records that the unit would have given."""
        dataset = self.parts[unit.part][1]
        part = (dataset.name, dataset.corruption, dataset.severity)
        return [
            SetAside(*part, method, place, str(dataset.id(place)), reason)
            for method in unit.methods
            for place in unit.places
        ]

    def fingerprint(self) -> str:
        """Digest the model's weights, bit for bit."""
        return fingerprint(self.classifier.module)


def _blocks(part: int, methods: tuple[str, ...], places: range, size: int) -> Iterator[Unit]:
    for start in range(0, len(places), size):
        yield Unit(part, methods, places[start : start + size])
