"""The paper's search (appendix A), narrowed stage by stage, on the validation corruptions alone."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from torch import nn

from memo_tta.data.corruptions.severity import VALIDATION
from memo_tta.evaluation.evaluate import Report, evaluate
from memo_tta.evaluation.job import Job, Replica
from memo_tta.evaluation.statistics import wilson_interval
from memo_tta.evaluation.store import reading
from memo_tta.models.batchnorm import statistics_layers
from memo_tta.workers import Engine

DECADES = (1e-3, 1e-4, 1e-5, 1e-6)
AROUND_BEST = (5, 2.5, 0.5)
PRIORS = (8, 16, 32)
TRANSFORMER_PRIORS = (1, 2, 4, 8, 16, 32, None)
UPDATES = ({"optimizer": "sgd"}, {"optimizer": "adamw"}, {"optimizer": "adamw", "weight_decay": 0.1})

Options = Mapping[str, Any]
Stage = Callable[[Options], list[dict[str, Any]]]  # from the best so far, changes to try


@dataclass(frozen=True)
class Trial:
    """Options, and how they did on all validation points together."""

    method: str
    options: Options
    wrong: int
    points: int

    @property
    def error(self) -> float:
        return self.wrong / self.points

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.wrong, self.points)


def stages(module: nn.Module) -> list[Stage]:
    """What is searched for a model: transformers also by update rule and weight decay."""
    transformer = any(isinstance(layer, nn.LayerNorm) for layer in module.modules())
    updates, priors = (UPDATES, TRANSFORMER_PRIORS) if transformer else (({},), PRIORS)
    found: list[Stage] = [
        lambda _: [{**update, "lr": lr} for update, lr in product(updates, DECADES)],
        lambda best: [{"lr": float(f"{best['lr'] * factor:.3g}")} for factor in AROUND_BEST],
        lambda _: [{"steps": 2}],
        lambda _: [{"threshold": 0.5}],
    ]
    if statistics_layers(module):
        found.append(
            lambda best: [{"prior_strength": n} for n in priors if n != best.get("prior_strength", 16)]
        )
    return found


def trial_count(module: nn.Module) -> int:
    """How many settings will be tried, the source among them."""
    return 1 + sum(len(stage({"lr": 1.0})) for stage in stages(module))


def tune(job: Job, folder: Path, engine: Engine[Any, Any], report: Report) -> Iterator[Trial]:
    """The source, then every setting, each as a run of its own in the folder that goes on if it was begun."""
    job = replace(job, corruptions=job.corruptions or VALIDATION)
    replica = Replica(replace(job, methods=("source",)))
    search, start = stages(replica.classifier.module), dict(replica.classifier.settings)
    del replica
    yield _trial(job, folder, "source", {}, engine, report)
    best: Trial | None = None
    for stage in search:
        base = {**start, **(best.options if best else {})}
        for change in stage(base):
            options = {**(best.options if best else {}), **change}
            trial = _trial(job, folder, "memo", options, engine, report)
            yield trial
            # Of equals the first stays: it is the simpler one.
            if best is None or trial.wrong < best.wrong:
                best = trial


def _trial(
    job: Job, folder: Path, method: str, options: Options, engine: Engine[Any, Any], report: Report
) -> Trial:
    changes = " ".join(f"{key}={value}" for key, value in options.items())
    out = folder / f"{method} {changes}".strip()
    chosen = {**job.options.get(method, {}), **options}
    missing = evaluate(replace(job, methods=(method,), options={method: chosen}), out, engine, report)
    with reading(out) as store:
        wrong, points = store.errors()[method]
    # No answer is a wrong one: else options that fail would win.
    return Trial(method, options, wrong + len(missing), points + len(missing))


def best_of(trials: list[Trial]) -> Trial:
    """The first of those with the fewest errors, the source left out."""
    return min((trial for trial in trials if trial.method != "source"), key=lambda trial: trial.wrong)


def as_toml(trials: list[Trial], command: str) -> str:
    """The winner as options of `memo`, and as comments its interval and all that was tried."""
    best = best_of(trials)
    low, high = best.interval
    lines = [
        f"# Made by: {command}",
        f"# Error {best.error:.2%} on {best.points} validation points, 95 % interval {low:.2%}..{high:.2%}.",
        "",
        "[memo]",
        *(f"{key} = {_value(value)}" for key, value in best.options.items()),
        "",
        "# All that was tried:",
        *(f"# {t.error:7.2%}  {t.method:6}  {json.dumps(dict(t.options))[1:-1]}" for t in trials),
    ]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return '"none"' if value is None else json.dumps(value)
