"""Evaluate a job with an engine: its workers compute, this process alone writes."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from memo_tta import __version__
from memo_tta.data.surroundings import surroundings
from memo_tta.errors import ConfigError, MemoError
from memo_tta.evaluation.job import Job, Replica, Unit
from memo_tta.evaluation.record import Record
from memo_tta.evaluation.runner import SetAside, Skipped
from memo_tta.evaluation.store import RecordStore, Row, differences, writing
from memo_tta.methods import METHODS
from memo_tta.models.classifier import Classifier
from memo_tta.workers import TRIES, Engine, Failed, Work, default_workers

SMALL_IMAGE = 64  # pixels a side
GIB_PER_WORKER = 8  # of a model that takes larger ones: all views at once, with what backward needs
FAILURES_IN_A_ROW = 10  # are not the fault of single points

# Records so far, records in all, and of each method (wrong answers, answers).
Report = Callable[[int, int, dict[str, tuple[int, int]]], None]


def evaluate(job: Job, out: Path, engine: Engine[Any, Any], report: Report) -> list[SetAside]:
    """Fill the run in `out` with what is missing of the job's records; which could not be had."""
    for method in job.methods:
        _ = METHODS[method]  # an unknown one is told before any work
    with writing(out) as store:
        known = store.facts()
        _check_same("job", known.get("job", {}), job.facts(), out)
        replica = Replica(job)
        _check_same("model", known, {"fingerprint": replica.fingerprint()}, out)
        store.take_up()
        tally = Tally(replica, store, report)
        if not known:
            store.remember({"job": job.facts(), "total": tally.total, **_circumstances(replica)})
        sent, paths = job.anywhere()
        engine.check(partial(surroundings, paths))
        keep_replica(sent, replica)
        classifier = engine.share(f"{job.model} {replica.fingerprint()}", replica.classifier)
        function = partial(run_unit, sent, classifier, engine.device)
        work = Work(function, replica.split, replica.is_long, gib_per_worker(replica))
        with closing(engine.results(work, _missing(replica, store))) as results:
            for result in results:
                rows = tally.failed(result) if isinstance(result, Failed) else result
                store.add(rows)
                tally.count(rows)
        tally.close()
        return store.set_aside()


class Tally:
    """How far a run is, and how it goes."""

    def __init__(self, replica: Replica, store: RecordStore, report: Report):
        self.replica, self.report = replica, report
        self.total = sum(len(unit.places) * len(unit.methods) for unit in replica.units())
        self.errors = store.errors()
        self.done = sum(answers for _, answers in self.errors.values())
        self.failures, self.reason = 0, ""  # since something went well, and the last one's
        self.count(store.skipped())

    def count(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if isinstance(row, Record):
                wrong, answers = self.errors.get(row.method, (0, 0))
                self.errors[row.method] = (wrong + (not row.right), answers + 1)
                self.failures = 0
            self.done += len(self.replica.job.methods) if isinstance(row, Skipped) else 1
        self.report(min(self.done, self.total), self.total, self.errors)

    def failed(self, failed: Failed[Unit]) -> list[SetAside]:
        """Rows for what failed, unless everything does."""
        error = failed.error
        self.reason = str(error) if isinstance(error, MemoError) else f"{type(error).__name__}: {error}"
        self.failures += 1
        if self.failures == FAILURES_IN_A_ROW:
            raise self._useless() from error
        return self.replica.set_aside(failed.item, f"failed {TRIES} times: {self.reason}")

    def close(self) -> None:
        if self.failures and not self.errors:
            raise self._useless()

    def _useless(self) -> MemoError:
        return MemoError(
            f"{self.replica.job.model}: one point after the other fails, the last with: {self.reason}"
        )


Fetch = Callable[[], Classifier]


def run_unit(job: Job, fetch: Fetch | None, device: str, unit: Unit) -> list[Record | Skipped]:
    """In a worker, whose replica lasts from one unit to the next."""
    key = job.key()
    if key not in _REPLICA:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        replica = Replica(job, fetch and fetch())
        replica.classifier.module.to(device)
        keep_replica(job, replica)
    return _REPLICA[key].run(unit)


_REPLICA: dict[str, Replica] = {}  # the one of the present job


def keep_replica(job: Job, replica: Replica) -> None:
    """For units that this process will work on."""
    _REPLICA.clear()
    _REPLICA[job.key()] = replica


def _missing(replica: Replica, store: RecordStore) -> Iterator[Unit]:
    for unit in replica.units():
        dataset = replica.parts[unit.part][1]
        part = (dataset.name, dataset.corruption, dataset.severity)
        if store.count(part, unit.methods, unit.places) < len(unit.places) * len(unit.methods):
            yield unit


def _check_same(what: str, known: Mapping[str, Any], wanted: Mapping[str, Any], out: Path) -> None:
    if differ := list(differences(known, wanted)):
        raise ConfigError(f"{out}: is a run of another {what} ({'; '.join(differ)}): use another --out")


def _circumstances(replica: Replica) -> dict[str, Any]:
    """What else one may want to know of a run."""
    return {
        "labels": {dataset.name: list(dataset.labels) for _, dataset in replica.parts},
        "metric": replica.parts[0][1].metric,
        "fingerprint": replica.fingerprint(),
        "parameters": sum(p.numel() for p in replica.classifier.module.parameters()),
        "versions": {
            "memo_tta": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "host": {"system": platform.platform(), "cores": default_workers()},
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def gib_per_worker(replica: Replica) -> float:
    """Small images need next to nothing."""
    size = replica.classifier.size
    return 0 if size is None or size <= SMALL_IMAGE else GIB_PER_WORKER
