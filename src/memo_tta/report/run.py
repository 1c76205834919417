"""A run as a report needs it: its circumstances, its figures, and what is missing of it."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memo_tta.data.catalog import CATALOG
from memo_tta.errors import DataError, MemoError
from memo_tta.evaluation.analysis import MethodResult, ResultBlock, collect, rows
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import FailedRecord, SkippedPoint
from memo_tta.evaluation.store import open_for_reading
from memo_tta.methods import METHODS
from memo_tta.models.zoo import ZOO

# Strings that read back as themselves after --option NAME=.
PLAIN = re.compile(r"(?!(?:true|false|none|inf|nan)$)[A-Za-z_][\w.-]*", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """What `memo evaluate` left in a folder."""

    folder: Path
    facts: dict[str, Any]
    blocks: Sequence[ResultBlock]
    skipped: Sequence[SkippedPoint]
    failed_records: Sequence[FailedRecord] = ()

    @cached_property
    def job(self) -> EvaluationJob | None:
        return EvaluationJob(**self.facts["job"]) if "job" in self.facts else None

    @property
    def model(self) -> str:
        """Short enough for a heading."""
        name = self.job.model if self.job else self.folder.name
        return Path(name).name if ".py:" in name else name

    def name(self, block: ResultBlock) -> str:
        shifted = block.corrupted and not block.dataset.endswith("-c")
        return f"{self.model} · {block.dataset}" + (", corrupted" if shifted else "")

    def heading(self, block: ResultBlock, runs: int) -> str:
        """Among several runs, which often share model and data, with the folder's name."""
        return f"{self.name(block)} ({self.folder.name})" if runs > 1 else self.name(block)

    @cached_property
    def tables(self) -> list[tuple[ResultBlock, list[MethodResult]]]:
        """The rows of every block."""
        relative = self.facts.get("metric") == "mce" or "imagenet-c" in (self.job.data if self.job else ())
        return [
            (block, rows(block, relative and block.corrupted, self._clean_imagenet()))
            for block in self.blocks
        ]

    def _clean_imagenet(self) -> ResultBlock | None:
        """ImageNet itself has no name in the catalog: it is a folder of the user's."""
        clean = [b for b in self.blocks if not b.corrupted and b.dataset not in CATALOG]
        return clean[0] if len(clean) == 1 else None

    def class_names(self, block: ResultBlock) -> list[str]:
        """Name the classes in the records; numbers where nobody kept the names."""
        highest = max(int(part.target.max()) for methods in block.parts.values() for part in methods.values())
        names = self.facts.get("labels", {}).get(block.dataset, [])
        return names if highest < len(names) else [str(index) for index in range(highest + 1)]

    def n_views(self, method: str) -> int | None:
        """How many views the method looked at; None if it takes none, or the model's file decides."""
        given = self.job.options.get(method, {}) if self.job else {}
        return given.get("n_views") or self._resolved(method, given).get("n_views")

    def unusual_options(self, method: str) -> dict[str, Any]:
        """What the user set otherwise than model and method have it."""
        chosen = self.job.options.get(method, {}) if self.job else {}
        usual = self._resolved(method, {})
        return {name: value for name, value in chosen.items() if name not in usual or usual[name] != value}

    def _resolved(self, method: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The method's options; empty where they are not known here: a file of the user's may set others."""
        if self.job is None or method not in METHODS or ".py:" in self.job.model:
            return {}
        settings = ZOO[self.job.model].settings if self.job.model in ZOO else {}
        try:
            return vars(METHODS[method].resolve(settings, given))
        except MemoError:  # options of another version
            return {}

    @property
    def command(self) -> str:
        """What makes this run, or goes on with it."""
        return (
            evaluate_command(self.job, self.folder) if self.job else f"memo evaluate ... --out {self.folder}"
        )

    @property
    def stored(self) -> int:
        return sum(len(a) for block in self.blocks for part in block.parts.values() for a in part.values())

    @cached_property
    def notes(self) -> list[str]:
        """What a reader should know before trusting the figures."""
        notes = [self._completeness()]
        for block, table in self.tables:
            most = max(row.points for row in table)
            few = [f"{row.method} {row.points}" for row in table if row.points < most]
            if few:
                notes.append(
                    f"{block.dataset}: of {most} points, {', '.join(few)}; differences use shared points"
                )
        if self.skipped:
            notes.append(f"{len(self.skipped)} points could not be read and were left out")
        if self.failed_records:
            notes.append(
                f"{len(self.failed_records)} records were set aside: {self.failed_records[0].reason}"
            )
        return [note for note in notes if note]

    @property
    def missing(self) -> int:
        """How many records are still to come."""
        skipped = len(self.skipped) * len(self.job.methods if self.job else ())
        return max(0, self.facts.get("total", 0) - self.stored - skipped)

    def _completeness(self) -> str:
        if not self.missing:
            return ""
        return f"{self.missing} of {self.facts['total']} records are missing: go on with `{self.command}`"


def open_run(folder: Path) -> Run:
    with open_for_reading(folder) as store:
        blocks = collect(store.records())
        run = Run(folder, store.metadata(), blocks, store.skipped(), store.failed_records())
    if not run.blocks:
        raise DataError(f"{folder}: no records yet: let `{run.command}` go on")
    return run


def evaluate_command(job: EvaluationJob, out: Path) -> str:
    """The words that make a job of that kind."""
    words = ["memo", "evaluate", *job.data, "--model", job.model]
    if job.weights is not None:
        words += ["--weights", job.weights]
    words += ["--methods", ",".join(job.methods)]
    for method, options in job.options.items():
        for name, value in options.items():
            words += ["--option", f"{method}.{name}={_option(value)}"]
    if job.corruptions is not None:
        words += ["--corruptions", ",".join(job.corruptions)]
    if job.severities is not None:
        words += ["--severities", ",".join(map(str, job.severities))]
    if job.limit is not None:
        words += ["--limit", str(job.limit)]
    if job.seed:
        words += ["--seed", str(job.seed)]
    if job.skip_bad:
        words += ["--skip-bad"]
    return shlex.join([*words, "--out", str(out)])


def _option(value: Any) -> str:
    """As the command line reads it back."""
    if value is None:
        return "none"
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value)
