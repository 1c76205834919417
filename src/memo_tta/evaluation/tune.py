"""The paper's hyperparameter search (appendix A), one stage after another, on validation corruptions only."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from torch import nn

from memo_tta.data.corruptions.severity import VALIDATION
from memo_tta.evaluation.driver import OnRecords, evaluate
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.statistics import wilson_interval
from memo_tta.evaluation.store import open_for_reading
from memo_tta.evaluation.worker import WorkerContext
from memo_tta.models.batch_norm import statistics_layers
from memo_tta.workers import Engine

DECADES = (1e-3, 1e-4, 1e-5, 1e-6)
AROUND_BEST = (5, 2.5, 0.5)  # factors of the best learning rate
PRIORS = (8, 16, 32)
TRANSFORMER_PRIORS = (1, 2, 4, 8, 16, 32, None)

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
    """Options of a method, and its errors over all validation points."""

    method: str
    options: TrialOptions
    wrong: int
    points: int

    @property
    def error(self) -> float:
        return self.wrong / self.points

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.wrong, self.points)


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


def trial_count(module: nn.Module) -> int:
    """Count the trials of the search, including the one of the source."""
    return 1 + sum(len(stage({"lr": 1.0})) for stage in stages(module))


def tune(
    job: EvaluationJob, folder: Path, engine: Engine[Any, Any], on_records: OnRecords
) -> Iterator[Trial]:
    """Yield the trial of the source, then one for every setting; each is a resumable run in the folder."""
    job = replace(job, corruptions=job.corruptions or VALIDATION)
    context = WorkerContext(replace(job, methods=("source",)))
    search, start = stages(context.classifier.module), dict(context.classifier.settings)
    del context
    yield _trial(job, folder, "source", {}, engine, on_records)
    best: Trial | None = None
    for stage in search:
        base = {**start, **(best.options if best else {})}
        for change in stage(base):
            options = {**(best.options if best else {}), **change}
            trial = _trial(job, folder, "memo", options, engine, on_records)
            yield trial
            # Of equal trials the first stays: it is the simpler one.
            if best is None or trial.wrong < best.wrong:
                best = trial


def _trial(
    job: EvaluationJob,
    folder: Path,
    method: str,
    options: TrialOptions,
    engine: Engine[Any, Any],
    on_records: OnRecords,
) -> Trial:
    changes = " ".join(f"{key}={value}" for key, value in options.items())
    out = folder / f"{method} {changes}".strip()
    chosen = {**job.options.get(method, {}), **options}
    missing = evaluate(replace(job, methods=(method,), options={method: chosen}), out, engine, on_records)
    with open_for_reading(out) as store:
        wrong, points = store.errors()[method]
    # A missing prediction counts as wrong: otherwise options that fail would win.
    return Trial(method, options, wrong + len(missing), points + len(missing))


def best_of(trials: list[Trial]) -> Trial:
    """Return the first trial with the fewest errors, leaving out the source."""
    return min((trial for trial in trials if trial.method != "source"), key=lambda trial: trial.wrong)


def as_toml(trials: list[Trial], command: str) -> str:
    """Return the best options as a [memo] table, with its interval and all trials as comments."""
    best = best_of(trials)
    low, high = best.interval
    lines = [
        f"# Made by: {command}",
        f"# Error {best.error:.2%} on {best.points} validation images, 95 % interval {low:.2%}..{high:.2%}.",
        "",
        "[memo]",
        *(f"{key} = {_toml_value(value)}" for key, value in best.options.items()),
        "",
        "# All trials:",
        *(f"# {t.error:7.2%}  {t.method:6}  {json.dumps(dict(t.options))[1:-1]}" for t in trials),
    ]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    return '"none"' if value is None else json.dumps(value)
