"""An evaluation run opened for a report: its metadata, results and completeness."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memo_tta.data.catalog import CATALOG
from memo_tta.data.formats.imagenet import IMAGENET_C
from memo_tta.errors import DataError, MemoError
from memo_tta.evaluation.comparison import ResultTable, method_results
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import FailedRecord, SkippedPoint
from memo_tta.evaluation.results import ResultBlock, collect
from memo_tta.evaluation.store import RESUMABLE, open_for_reading
from memo_tta.evaluation.stream_orders import ORDERS
from memo_tta.evaluation.versions import differences, run_versions
from memo_tta.methods import METHODS
from memo_tta.models.zoo import ZOO

# Strings that --option NAME= reads back unchanged.
PLAIN = re.compile(r"(?!(?:true|false|none|inf|nan)$)[A-Za-z_][\w.-]*", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """The content of a folder that `memo evaluate` has written."""

    folder: Path
    metadata: dict[str, Any]
    blocks: Sequence[ResultBlock]
    skipped: Sequence[SkippedPoint]
    failed_records: Sequence[FailedRecord] = ()

    @cached_property
    def job(self) -> EvaluationJob | None:
        """The job that the run computes; None if it was not stored, or by another version."""
        return EvaluationJob.from_dict(self.metadata.get("job", {}))

    @property
    def model(self) -> str:
        """The model's name, short enough for a heading."""
        name = self.job.model if self.job else self.folder.name
        return Path(name).name if ".py:" in name else name

    def name(self, block: ResultBlock) -> str:
        """Return the model and data of a block."""
        was_corrupted_here = block.is_corrupted and not block.dataset.endswith("-c")
        return f"{self.model} · {block.dataset}" + (", corrupted" if was_corrupted_here else "")

    def heading(self, block: ResultBlock, runs: int) -> str:
        """Return the block's name, with the folder's if the report shows several runs."""
        return f"{self.name(block)} ({self.folder.name})" if runs > 1 else self.name(block)

    @cached_property
    def tables(self) -> list[ResultTable]:
        """Each block with one row per method."""
        return [
            (block, method_results(block, self._has_mce(block), self.clean_imagenet()))
            for block in self.blocks
        ]

    def _has_mce(self, block: ResultBlock) -> bool:
        """Return whether AlexNet's errors are known for the block's images: for ImageNet-C's alone."""
        is_published = self.metadata.get("metric") == "mce" or IMAGENET_C in (
            self.job.data if self.job else ()
        )
        return is_published and block.is_corrupted and block.dataset == IMAGENET_C

    def clean_imagenet(self) -> ResultBlock | None:
        """Return the clean block whose data is not in the catalog: ImageNet itself is a user's folder."""
        clean = [block for block in self.blocks if not block.is_corrupted and block.dataset not in CATALOG]
        return clean[0] if len(clean) == 1 else None

    def class_names(self, block: ResultBlock) -> list[str]:
        """Return the stored class names, or numbers if they were not stored."""
        highest = max(int(part.target.max()) for methods in block.parts.values() for part in methods.values())
        names = self.metadata.get("labels", {}).get(block.dataset, [])
        return names if highest < len(names) else [str(index) for index in range(highest + 1)]

    def n_views(self, method: str) -> int | None:
        """Return the method's number of views; None if it uses none or a user's model file decides."""
        given = self._given_options(method)
        return given.get("n_views") or self._resolved(method, given).get("n_views")

    def changed_options(self, method: str) -> dict[str, Any]:
        """Return the options that the user set to other values than the defaults of model and method."""
        defaults = self._resolved(method, {})
        return {
            name: value
            for name, value in self._given_options(method).items()
            if name not in defaults or defaults[name] != value
        }

    def _given_options(self, method: str) -> Mapping[str, Any]:
        return self.job.options.get(method, {}) if self.job else {}

    def _resolved(self, method: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the method's effective options; empty if they are unknown, as for a user's model file."""
        if self.job is None or method not in METHODS or ".py:" in self.job.model:
            return {}
        entry = ZOO.get(self.job.model)
        settings, size = ({}, None) if entry is None else (entry.settings, entry.preprocessing["size"])
        try:
            return vars(METHODS[method].resolve(settings, given, size))
        except MemoError:  # options of another version
            return {}

    @property
    def command(self) -> str:
        """The command that starts or resumes this run."""
        return (
            evaluate_command(self.job, self.folder) if self.job else f"memo evaluate ... --out {self.folder}"
        )

    @property
    def stored(self) -> int:
        """The number of records in the run."""
        parts = [part for block in self.blocks for part in block.parts.values()]
        return sum(len(results) for part in parts for results in part.values())

    @cached_property
    def notes(self) -> list[str]:
        """Warnings about missing or skipped results, for readers of the figures."""
        notes: list[str] = []
        if self.missing:
            total = self.metadata["total"]
            notes.append(f"{self.missing} of {total} records are missing: continue with `{self.command}`")
        for block, rows in self.tables:
            most = max(row.points for row in rows)
            fewer = [f"{row.method} has {row.points}" for row in rows if row.points < most]
            if fewer:
                notes.append(
                    f"{block.dataset}: {', '.join(fewer)} of {most} images; differences use shared images"
                )
        if (methods := self.metadata.get("order_matters")) and self.job:
            order = self.job.order
            about = f" ({ORDERS[order].about})" if order in ORDERS else ""
            notes.append(f"order of the images: {order}{about}; {', '.join(methods)} may differ in another")
        if self.skipped:
            notes.append(f"{len(self.skipped)} images could not be read and were skipped")
        if "total" not in self.metadata:
            notes.append("the number of its records is not known, so some may be missing")
        if several := differences(run_versions(self.metadata)):
            listed = "; ".join(f"{name} {' and '.join(values)}" for name, values in several.items())
            notes.append(f"computed by several versions: {listed}")
        if self.failed_records:
            reason = self.failed_records[0].reason
            notes.append(f"{len(self.failed_records)} records were set aside: {reason}")
        return notes

    @property
    def salvaged(self) -> str:
        """What a run that was saved from a damaged one has, and what it lacks."""
        if lost := ", ".join(sorted(RESUMABLE - self.metadata.keys())):
            return f"{self.stored} records were saved, but not the run's {lost}: show them, or start over"
        return f"{self.stored} records were saved, {self.missing} of {self.metadata['total']} are missing"

    @property
    def missing(self) -> int:
        """The number of records that are still to be computed."""
        skipped = len(self.skipped) * len(self.job.methods if self.job else ())
        return max(0, self.metadata.get("total", 0) - self.stored - skipped)


def open_run(folder: Path) -> Run:
    """Read a run; raise DataError if it has no records."""
    with open_for_reading(folder) as store:
        blocks = collect(store.records())
        run = Run(folder, store.metadata(), blocks, store.skipped(), store.failed_records())
    if not run.blocks:
        raise DataError(f"{folder}: no records yet: continue with `{run.command}`")
    return run


def evaluate_command(job: EvaluationJob, out: Path) -> str:
    """Return the `memo evaluate` command line of a job."""
    words = ["memo", "evaluate", *job.data, *model_words(job), "--methods", ",".join(job.methods)]
    for method, options in job.options.items():
        for name, value in options.items():
            words += ["--option", f"{method}.{name}={option_text(value)}"]
    if job.corruptions is not None:
        words += ["--corruptions", ",".join(job.corruptions)]
    if job.severities is not None:
        words += ["--severities", ",".join(map(str, job.severities))]
    if job.limit is not None:
        words += ["--limit", str(job.limit)]
    if job.order != EvaluationJob.order:
        words += ["--order", job.order]
    if job.seed:
        words += ["--seed", str(job.seed)]
    if job.skip_bad:
        words += ["--skip-bad"]
    return shlex.join([*words, "--out", str(out)])


def model_words(job: EvaluationJob) -> list[str]:
    """Return the words of a command line that choose a job's model."""
    words = ["--model", job.model]
    for name, value in job.model_arguments.items():
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return words


def option_text(value: Any) -> str:
    """Format an option's value so that the command line reads it back unchanged."""
    if value is None:
        return "none"
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value)
