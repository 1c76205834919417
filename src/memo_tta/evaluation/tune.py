"""The paper's hyperparameter search (appendix A) on validation corruptions, without harm on clean images."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from torch import nn

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import SEVERITIES, VALIDATION
from memo_tta.evaluation.comparison import compare
from memo_tta.evaluation.config_file import config_text
from memo_tta.evaluation.driver import OnRecords, evaluate
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import FailedRecord, Record
from memo_tta.evaluation.results import collect
from memo_tta.evaluation.statistics import PairedComparison, wilson_interval
from memo_tta.evaluation.store import open_for_reading
from memo_tta.models.batch_norm import statistics_layers
from memo_tta.models.classifier import Classifier
from memo_tta.workers import Engine

DECADES = (1e-3, 1e-4, 1e-5, 1e-6)
AROUND_BEST = (5, 2.5, 0.5)  # factors of the best learning rate
PRIORS = (8, 16, 32)
TRANSFORMER_PRIORS = (1, 2, 4, 8, 16, 32, None)
GENTLE_PRIORS = (64, 256, None)  # not the paper's: tried if everything else does harm

TrialOptions = Mapping[str, Any]
Stage = Callable[[TrialOptions], list[dict[str, Any]]]  # from the best options so far to changes to try

DEFAULT_UPDATE: Sequence[TrialOptions] = ({},)
TRANSFORMER_UPDATES: Sequence[TrialOptions] = (
    {"optimizer": "sgd"},
    {"optimizer": "adamw"},
    {"optimizer": "adamw", "weight_decay": 0.1},
)


@dataclass(frozen=True)
class Trial:
    """Options of a method, and its errors over all validation images."""

    method: str
    options: TrialOptions
    wrong: int
    points: int
    change: PairedComparison | None = None  # to the source, on the same corrupted images
    harm: PairedComparison | None = None  # to the source, on clean images; None if it was not measured

    @property
    def error(self) -> float:
        return self.wrong / self.points

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.wrong, self.points)

    @property
    def images(self) -> int:
        """The number of images that were classified, clean ones included."""
        return self.points + (0 if self.harm is None else self.harm.points)


def stages(module: nn.Module) -> list[Stage]:
    """Return the stages of the search; transformers also vary the optimizer and the weight decay."""
    is_transformer = any(isinstance(layer, nn.LayerNorm) for layer in module.modules())
    updates, priors = (
        (TRANSFORMER_UPDATES, TRANSFORMER_PRIORS) if is_transformer else (DEFAULT_UPDATE, PRIORS)
    )
    search: list[Stage] = [
        lambda _: [{**update, "lr": lr} for update, lr in product(updates, DECADES)],
        lambda best: [{"lr": float(f"{best['lr'] * factor:.3g}")} for factor in AROUND_BEST],
        lambda _: [{"steps": 2}],
        lambda _: [{"threshold": 0.5}],
    ]
    if statistics_layers(module):
        search.append(
            lambda best: [{"prior_strength": n} for n in priors if n != best.get("prior_strength", 16)]
        )
    return search


def gentler_stage(module: nn.Module) -> Stage:
    """Return the stage for a search in which everything else does harm: weaker batch-norm mixing."""
    priors = GENTLE_PRIORS if statistics_layers(module) else ()
    return lambda _: [{"prior_strength": n} for n in priors]


def trial_count(module: nn.Module) -> int:
    """Count the trials of the longest search, including the one of the source."""
    return 1 + sum(len(stage({"lr": 1.0})) for stage in [*stages(module), gentler_stage(module)])


def passes(trial: Trial, harm: float) -> bool:
    """Return whether the error on clean images exceeds the source's by at most `harm`, a fraction."""
    return trial.harm is None or trial.harm.difference <= harm + 1e-9


def best_of(trials: Sequence[Trial], harm: float) -> Trial | None:
    """Return the first trial with the fewest errors among those that help and pass; None: keep the source."""
    source, *settings = trials
    allowed = [trial for trial in settings if trial.wrong < source.wrong and passes(trial, harm)]
    return min(allowed, key=lambda trial: trial.wrong, default=None)


class Search:
    """A search whose trials are resumable runs in a folder.

    It chooses the setting with the fewest errors on corrupted images, among those whose error on clean images
    exceeds the source's by at most `harm`. While none passes, it goes on from the one with the fewest errors.
    """

    def __init__(
        self, job: EvaluationJob, folder: Path, engine: Engine[Any, Any], on_records: OnRecords, harm: float
    ):
        self._job = replace(job, corruptions=job.corruptions or VALIDATION)
        self._folder, self._engine, self._on_records, self._harm = folder, engine, on_records, harm
        self.failed: dict[Path, Sequence[FailedRecord]] = {}  # by the folder of the trial
        self._source_records: dict[str, list[Record]] = {}
        self._best: Trial | None = None  # of the trials that pass
        self._leader: Trial | None = None  # of all

    def run(self, classifier: Classifier) -> Iterator[Trial]:
        """Yield the trial of the source, then one for every setting."""
        yield self._trial("source", {})
        for stage in stages(classifier.module):
            yield from self._stage(stage, classifier.settings)
        if self._best is None:
            yield from self._stage(gentler_stage(classifier.module), classifier.settings)

    def _stage(self, stage: Stage, settings: Mapping[str, Any]) -> Iterator[Trial]:
        base = self._best or self._leader
        options: TrialOptions = {} if base is None else base.options
        for change in stage({**settings, **options}):
            trial = self._trial("memo", {**options, **change})
            # Of equal trials the first stays: it is the simpler one.
            if self._best is None or trial.wrong < self._best.wrong:
                trial = replace(trial, harm=self._measure_harm(trial))
                self._best = trial if passes(trial, self._harm) else self._best
            if self._leader is None or trial.wrong < self._leader.wrong:
                self._leader = trial
            yield trial

    def _trial(self, method: str, options: TrialOptions) -> Trial:
        records, missing = self._evaluate(self._job, method, options, self._on_records)
        wrong = sum(not record.right for record in records)
        # A missing prediction counts as wrong: otherwise options that fail would win.
        wrong, points = wrong + missing, len(records) + missing
        return Trial(method, options, wrong, points, self._to_source(self._job, records))

    def _measure_harm(self, trial: Trial) -> PairedComparison | None:
        """Compare the setting with the source on as many clean images; None if the data has none."""
        if self._clean_job is None:
            return None

        def on_records(done: int, total: int, errors: dict[str, tuple[int, int]]) -> None:
            self._on_records(trial.points + done, trial.points + total, errors)

        records, _ = self._evaluate(self._clean_job, trial.method, trial.options, on_records)
        return self._to_source(self._clean_job, records)

    @cached_property
    def _clean_job(self) -> EvaluationJob | None:
        parts = [part for spec in self._job.data for part in load_parts(spec)]
        if any(part.corruption for part in parts):
            return None
        limit = self._job.limit and self._job.limit * len(self._job.corruptions or ())
        limit = limit and limit * len(self._job.severities or SEVERITIES)
        return replace(self._job, corruptions=None, severities=None, limit=limit)

    def _to_source(self, job: EvaluationJob, records: Sequence[Record]) -> PairedComparison | None:
        if not records or records[0].method == "source":
            return None
        key = job.key()
        if key not in self._source_records:
            self._source_records[key], _ = self._evaluate(job, "source", {}, _ignore)
        (block,) = collect([*self._source_records[key], *records])
        return compare(block, records[0].method, "source")

    def _evaluate(
        self, job: EvaluationJob, method: str, options: TrialOptions, on_records: OnRecords
    ) -> tuple[list[Record], int]:
        """Return the records of a setting and how many are missing, from disk as far as they are there."""
        words = [] if job.corruptions else ["clean"]
        words += [method, *(f"{key}={value}" for key, value in options.items())]
        out, chosen = self._folder / " ".join(words), {**job.options.get(method, {}), **options}
        job = replace(job, methods=(method,), options={method: chosen})
        failed = evaluate(job, out, self._engine, on_records).failed
        self.failed[out] = failed
        with open_for_reading(out) as store:
            return list(store.records()), len(failed)


def _ignore(_done: int, _total: int, _errors: object) -> None:
    """Report no progress."""


def summary(trials: Sequence[Trial], harm: float) -> list[str]:
    """Say what was chosen, what it changes on corrupted and on clean images, and how sure that is."""
    best, source = best_of(trials, harm), trials[0]
    allowed = f"{100 * harm:g} points"
    if best is None:
        return [
            "No setting of memo has fewer errors than the source on corrupted images "
            f"({source.error:.2%}) and at most {allowed} more on clean ones: use the source model as it is."
        ]
    low, high = best.interval
    interval = f"95 % interval {low:.2%} to {high:.2%}"
    lines = [f"Error {best.error:.2%} on {best.points} corrupted images ({interval})."]
    if (change := best.change) is not None:
        lines.append(f"Compared with the source, on corrupted images: {_points(change)}.")
        if change.high >= 0:
            lines.append("That difference is within the noise of so few images: raise --limit.")
    if best.harm is None:
        lines.append("The data has no clean images, so harm on them was not measured.")
    else:
        lines.append(f"On {best.harm.points} clean images: {_points(best.harm)}; allowed were +{allowed}.")
        if best.harm.high > harm:
            lines.append("The harm may be larger than allowed, by its interval: raise --limit to be sure.")
    return lines


def _points(change: PairedComparison) -> str:
    """Format a change in percentage points with its interval."""
    difference, low, high = (f"{100 * value:+.2f}" for value in (change.difference, change.low, change.high))
    return f"{difference} points (95 % interval {low} to {high})"


def as_toml(trials: Sequence[Trial], harm: float, given: TrialOptions, command: str) -> str:
    """Return the best options, with those given to all trials, as a [memo] table; all trials as comments."""
    best = best_of(trials, harm)
    remarks = ["All trials: error on corrupted images, change on clean ones, options"]
    for trial in trials:
        clean = "" if trial.harm is None else f"{100 * trial.harm.difference:+.2f}"
        options = json.dumps(dict(trial.options))[1:-1]
        remarks.append(f"{trial.error:7.2%}  {clean:>6}  {trial.method:6}  {options}")
    tables = {} if best is None else {"memo": {**given, **best.options}}
    return config_text(None, tables, [f"Made by: {command}", *summary(trials, harm)], remarks)
