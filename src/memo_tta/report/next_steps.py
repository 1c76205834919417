"""The commands to run after a report."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.recommendation import SOURCE
from memo_tta.report.run import Run, evaluate_command, model_words, option_text

NEW = Path("NEW")  # a folder that the user names


def use_method(run: Run, method: str) -> list[str]:
    """Return the commands that predict and serve with a method as it was evaluated."""
    if run.job is None:
        return []
    words = [*model_words(run.job), "--method", method]
    for name, value in run.job.options.get(method, {}).items():
        words += ["--option", f"{name}={option_text(value)}"]
    return [_command("predict", ["IMAGE", *words]), _command("serve", words)]


def compare_clean_and_shifted(run: Run, dataset: str) -> list[str]:
    """Return the command that measures gain on shifted images and harm on clean ones."""
    if run.job is None or (data := _clean_data(run.job, dataset)) is None:
        return []
    return [_command("advise", [data, *model_words(run.job)])]


def add_source(run: Run) -> list[str]:
    """Return the command of a run that has the source, too."""
    if run.job is None:
        return []
    return [evaluate_command(replace(run.job, methods=(SOURCE, *run.job.methods)), NEW)]


def _clean_data(job: EvaluationJob, dataset: str) -> str | None:
    """Return the data as `memo advise` takes it; None if what was evaluated is corrupted on disk."""
    specs = [spec for spec in job.data if dataset in (spec, Path(spec).name, Path(spec).stem)]
    specs += [spec.rpartition("+")[0] for spec in job.data if "+" in spec]
    found = specs[0] if specs else job.data[0] if len(job.data) == 1 else None
    return None if found is None or found.endswith("-c") else found


def _command(name: str, words: Sequence[str]) -> str:
    return shlex.join(["memo", name, *words])
