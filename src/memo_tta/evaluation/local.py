"""Evaluate on this machine: workers compute, this process alone writes."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from memo_tta import __version__
from memo_tta.errors import ConfigError
from memo_tta.evaluation.job import Job, Replica, Unit
from memo_tta.evaluation.record import Record
from memo_tta.evaluation.runner import Skipped
from memo_tta.evaluation.store import RecordStore, differences, writing
from memo_tta.methods import METHODS
from memo_tta.workers import default_workers, ordered_map

SMALL_IMAGE = 64  # pixels a side
GIB_PER_WORKER = 8  # of a model that takes larger ones: all views at once, with what backward needs

# Records so far, records in all, and of each method (wrong answers, answers).
Report = Callable[[int, int, dict[str, tuple[int, int]]], None]


def evaluate(job: Job, out: Path, workers: int | None, report: Report) -> None:
    """Fill the run in `out` with what is missing of the job's records."""
    for method in job.methods:
        _ = METHODS[method]  # an unknown one is told before any work
    with writing(out) as store:
        known = store.facts()
        _check_same("job", known.get("job", {}), job.facts(), out)
        replica = Replica(job)
        _check_same("model", known, {"fingerprint": replica.fingerprint()}, out)
        total = sum(len(unit.places) * len(unit.methods) for unit in replica.units())
        if not known:
            store.remember({"job": job.facts(), "total": total, **_circumstances(replica)})
        workers = workers or auto_workers(replica)
        errors = store.errors()
        skipped = len(store.skipped()) * len(job.methods)
        done = sum(answers for _, answers in errors.values()) + skipped
        report(done, total, errors)
        work = replica.run if workers == 1 else partial(run_unit, job)
        for results in ordered_map(work, _missing(replica, store), workers):
            store.add(results)
            for row in results:
                if isinstance(row, Record):
                    wrong, answers = errors.get(row.method, (0, 0))
                    errors[row.method] = (wrong + (not row.right), answers + 1)
            done += sum(1 if isinstance(row, Record) else len(job.methods) for row in results)
            report(min(done, total), total, errors)


def run_unit(job: Job, unit: Unit) -> list[Record | Skipped]:
    """In a worker, whose replica lasts from one unit to the next."""
    return _replica(job.key(), lambda: Replica(job)).run(unit)


_REPLICAS: dict[str, Replica] = {}


def _replica(key: str, build: Callable[[], Replica]) -> Replica:
    if key not in _REPLICAS:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        _REPLICAS[key] = build()
    return _REPLICAS[key]


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


@cache
def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def auto_workers(replica: Replica) -> int:
    """One per core for small images; for larger ones as many as there is memory for."""
    cores = default_workers()
    size = replica.classifier.size
    if size is None or size <= SMALL_IMAGE:
        return cores
    return max(1, min(cores, int(_memory_gib() / GIB_PER_WORKER)))
