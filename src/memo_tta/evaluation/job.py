"""What is to be evaluated, and how it is cut into pieces of work."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from memo_tta.data.catalog import load_parts
from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.fitting import fit
from memo_tta.evaluation.record import Record
from memo_tta.evaluation.runner import Skipped, run
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

    def __init__(self, job: Job):
        self.job = job
        self.classifier = load(job.model, job.weights, job.num_classes)
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
                yield from _blocks(index, single, len(dataset), size)
            for name, method in methods.items():
                if name not in single:
                    size = len(dataset) if method.online else method.points
                    yield from _blocks(index, (name,), len(dataset), size)

    def run(self, unit: Unit) -> list[Record | Skipped]:
        dataset = self.parts[unit.part][1]
        methods = {name: self._methods(unit.part, name) for name in unit.methods}
        return list(run(dataset, methods, unit.places, self.job.skip_bad))

    def fingerprint(self) -> str:
        """Of the model's weights, bit for bit."""
        return fingerprint(self.classifier.module)


def _blocks(part: int, methods: tuple[str, ...], points: int, size: int) -> Iterator[Unit]:
    for start in range(0, points, size):
        yield Unit(part, methods, range(start, min(start + size, points)))
