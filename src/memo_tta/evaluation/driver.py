"""Run an evaluation: workers compute units of points, this process alone writes their records."""

import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from memo_tta.data.corruptions.frost import frost_source
from memo_tta.errors import ConfigError, MemoError, MemoWarning
from memo_tta.evaluation.job import EvaluationJob, with_earlier
from memo_tta.evaluation.records import FailedRecord, Record, SkippedPoint
from memo_tta.evaluation.store import FILE, RESUMABLE, RecordStore, open_for_reading, open_for_writing
from memo_tta.evaluation.stream_orders import ORDERS
from memo_tta.evaluation.tables import RunRow
from memo_tta.evaluation.versions import KEY, current_versions, differences, next_key, run_versions
from memo_tta.evaluation.worker import WorkerContext, WorkUnit, keep_context, run_unit
from memo_tta.evaluation.worker_memory import plan_memory
from memo_tta.files import check_output_folder
from memo_tta.methods import METHODS
from memo_tta.models.classifier import Classifier
from memo_tta.views.execution import execution_name
from memo_tta.workers import MAX_TRIES, Engine, FailedItem, Work, available_cores
from memo_tta.workers.environment import environment

MAX_FAILURES_IN_A_ROW = 10  # this many are not the fault of single points

# Called with the number of records so far, their final number, and (wrong, all) predictions of each method.
OnRecords = Callable[[int, int, dict[str, tuple[int, int]]], None]


@dataclass(frozen=True)
class LeftOut:
    """What a finished run does not have records of."""

    failed: Sequence[FailedRecord]
    skipped: Sequence[SkippedPoint]


def evaluate(
    job: EvaluationJob,
    out: Path,
    engine: Engine[Any, Any],
    on_records: OnRecords,
    on_plan: Callable[[str], None] = lambda _: None,
    classifier: Classifier | None = None,
) -> LeftOut:
    """Compute the records that the run in `out` does not have yet; return what was left out.

    A `classifier` is used instead of the job's model; other processes cannot load it, so the engine has to
    share it or work in this one. `on_plan` is told how the classes match and what a worker will take, before
    the work starts. Everything that can be refused is refused before the folder is created.
    """
    for method in job.methods:
        _ = METHODS[method]  # an unknown name is an error before any work
    _ = ORDERS[job.order]
    check_output_folder(out)
    known = _stored_metadata(out)
    _check_same("job", with_earlier(known["job"]) if known else {}, job.as_dict(), out)
    context = WorkerContext(job, classifier)
    _check_same("model", known, {"fingerprint": context.fingerprint()}, out)
    memory = plan_memory(context, engine.memory_gib)
    for line in (*context.class_matches.values(), str(memory)):
        on_plan(line)
    # Micro-batches change predictions slightly, so a run keeps those that it was started with.
    micro_batches = known.get("micro_batches", memory.micro_batches)
    if micro_batches:
        context = WorkerContext(job.with_micro_batches(micro_batches), context.classifier)
    total = context.record_count()
    worker_job, paths = context.job.with_absolute_paths()
    engine.check_nodes(partial(environment, paths, {"frost": frost_source, "views": execution_name}))
    with open_for_writing(out) as store:
        if store.metadata() != known:
            raise ConfigError(f"{out}: another process has written to this run meanwhile: try again")
        store.clear_failed()
        if not known:
            facts = {"job": job.as_dict(), "total": total, "micro_batches": micro_batches}
            store.save_metadata({**facts, **_describe_run(context)})
        progress = RunProgress(context, total, store, on_records)
        if progress.done < total:
            _note_versions(store, out)
        keep_context(worker_job, context)
        fetch_classifier = engine.share(f"{job.model} {context.fingerprint()}", context.classifier)
        function = partial(run_unit, worker_job, fetch_classifier, engine.device)
        work = Work(function, context.split, context.is_long, memory.gib)
        with closing(engine.results(work, _missing_units(context, store))) as results:
            for result in results:
                rows = progress.count_failure(result) if isinstance(result, FailedItem) else result
                store.add(rows)
                progress.count(rows)
        progress.raise_if_all_failed()
        return LeftOut(store.failed_records(), store.skipped())


def _stored_metadata(out: Path) -> dict[str, Any]:
    """Return the metadata of the run that `out` holds; raise if that is not enough to continue it."""
    if not (out / FILE).exists():
        return {}
    with open_for_reading(out) as store:
        known = store.metadata()
        is_begun = known or next(store.records(), None) is not None
        if is_begun and (lost := RESUMABLE - known.keys()):
            raise ConfigError(
                f"{out}: cannot be continued, because it does not hold its {', '.join(sorted(lost))}: "
                "use another --out"
            )
    return known


class RunProgress:
    """Count records and errors, and end a run in which every point fails."""

    def __init__(self, context: WorkerContext, total: int, store: RecordStore, on_records: OnRecords):
        self.context, self.total, self.on_records = context, total, on_records
        self.errors = store.errors()
        self.done = sum(predictions for _, predictions in self.errors.values())
        self.failures, self.reason = 0, ""  # failed units since the last record, and the last reason
        self.count(store.skipped())

    def count(self, rows: Sequence[RunRow]) -> None:
        """Add rows to the counts and report them."""
        for row in rows:
            if isinstance(row, Record):
                wrong, predictions = self.errors.get(row.method, (0, 0))
                self.errors[row.method] = (wrong + (not row.right), predictions + 1)
                self.failures = 0
            self.done += len(self.context.job.methods) if isinstance(row, SkippedPoint) else 1
        self.on_records(min(self.done, self.total), self.total, self.errors)

    def count_failure(self, item: FailedItem[WorkUnit]) -> list[FailedRecord]:
        """Return the rows of a failed unit; raise after too many failures in a row."""
        error = item.error
        self.reason = str(error) if isinstance(error, MemoError) else f"{type(error).__name__}: {error}"
        self.failures += 1
        if self.failures == MAX_FAILURES_IN_A_ROW:
            raise self._all_failed() from error
        return self.context.failed_records(item.item, f"failed {MAX_TRIES} times: {self.reason}")

    def raise_if_all_failed(self) -> None:
        """Raise if units failed and the run has no record."""
        if self.failures and not self.errors:
            raise self._all_failed()

    def _all_failed(self) -> MemoError:
        return MemoError(
            f"{self.context.job.model}: every prediction fails; the last error was: {self.reason}"
        )


def _missing_units(context: WorkerContext, store: RecordStore) -> Iterator[WorkUnit]:
    """Yield the units of which records are missing; no two units have a record in common."""

    @cache
    def is_stored(part: int, method: str) -> np.ndarray:
        dataset = context.parts[part][1]
        found = np.zeros(len(dataset), bool)
        positions = np.array(
            store.positions((dataset.name, dataset.corruption, dataset.severity), method), int
        )
        found[positions[positions < len(dataset)]] = True
        return found

    for unit in context.units():
        by_part = context.streams[unit.stream].by_part(unit.places)
        if not all(is_stored(part, name)[p].all() for part, p in by_part for name in unit.methods):
            yield unit


def _check_same(what: str, known: Mapping[str, Any], wanted: Mapping[str, Any], out: Path) -> None:
    """Raise if a wanted value differs from the one that the run in `out` was started with."""
    changes = [
        f"{key} was {known[key]!r}, now {value!r}"
        for key, value in wanted.items()
        if key in known and known[key] != value
    ]
    if changes:
        raise ConfigError(f"{out}: is a run of another {what} ({'; '.join(changes)}): use another --out")


def _note_versions(store: RecordStore, out: Path) -> None:
    """Warn if the run was computed by other versions so far, and store the present ones beside those."""
    metadata, now = store.metadata(), current_versions()
    earlier = run_versions(metadata)
    if not earlier or not all(differences([versions, now]) for versions in earlier):
        return
    changes = differences([earlier[-1], now]).items()
    changed = ", ".join(f"{name} {old}, now {new}" for name, (old, new) in changes)
    warnings.warn(
        f"{out}: was computed with {changed}: its records may differ slightly", MemoWarning, stacklevel=2
    )
    store.save_metadata({next_key(metadata): now})


def _describe_run(context: WorkerContext) -> dict[str, Any]:
    """Return the facts about the run that a report shows beside its results."""
    return {
        "labels": {dataset.name: list(dataset.labels) for _, dataset in context.parts},
        "metric": "mce" if any(dataset.metric == "mce" for _, dataset in context.parts) else "error",
        "order_matters": context.order_matters,
        "fingerprint": context.fingerprint(),
        "parameters": sum(p.numel() for p in context.classifier.module.parameters()),
        KEY: current_versions(),
        "host": {"system": platform.platform(), "cores": available_cores()},
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
    }
