"""`evaluate`: compare methods on labelled data from Python, with the records of `memo evaluate`."""

import json
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from rich.console import Console

from memo_tta.api.results import Results
from memo_tta.api.run_classifier import check_same_classifier, save_description
from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError, DataError
from memo_tta.evaluation.driver import evaluate as run_evaluation
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.models.classifier import Classifier
from memo_tta.progress import ProgressUpdate, progress
from memo_tta.registry import unknown_name
from memo_tta.workers import Processes

Spec = str | PathLike[str]  # a name of `memo datasets`, a path, or one of them +CORRUPTION:SEVERITY


def evaluate(
    data: Spec | Sequence[Spec],
    classifier: Classifier | str,
    methods: str | Sequence[str] = ("source", "restore", "memo"),
    *,
    corruptions: str | Sequence[str] | None = None,
    severities: int | Sequence[int] | None = None,
    limit: int | None = None,
    order: str = "iid",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    out: str | PathLike[str] | None = None,
    workers: int = 1,
    skip_bad: bool = False,
    quiet: bool = False,
) -> Results:
    """Run methods on labelled data and return what each gets right, what it changes and how long it takes.

    The arguments are those of `memo evaluate`, and so are the records, but for the seconds. `data` is a name
    from `memo datasets`, a path, or a list of them; clean data is corrupted on the fly if `corruptions` or
    `severities` are given. `options` are those of methods, by method: {"memo": {"n_views": 16}}. `limit` is
    the number of images per data set, corruption and severity; `skip_bad` leaves out unreadable images.

    `out` is the folder of the run, which `memo report` shows and the same call resumes; without it, records
    live as long as the results. A classifier that is named by a string can have several `workers`. `quiet`
    shows no progress.
    """
    names = _several("methods", methods)
    job = EvaluationJob(
        data=_specs(data),
        model=classifier if isinstance(classifier, str) else _name(classifier),
        methods=names,
        options=_checked_options(options or {}, names),
        corruptions=None if corruptions is None else _several("corruptions", corruptions),
        severities=None if severities is None else _several("severities", severities),
        order=order,
        limit=None if limit is None else _whole("limit", limit, 1),
        seed=_whole("seed", seed, 0),
        skip_bad=skip_bad,
    )
    workers = _whole("workers", workers, 1)
    loaded = None if isinstance(classifier, str) else classifier
    if loaded is not None and workers > 1:
        raise ConfigError(
            f"workers: expected 1 for a classifier that is loaded already, got {workers}: other processes "
            "cannot have it; give the model's name instead"
        )
    if out is not None:
        _compute(job, Path(out), loaded, workers, quiet)
        return Results(out)
    folder = Path(mkdtemp(prefix="memo-evaluate-"))
    try:
        _compute(job, folder, loaded, workers, quiet)
        results = Results(folder)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(results, rmtree, folder, ignore_errors=True)
    return results


def _compute(job: EvaluationJob, out: Path, classifier: Classifier | None, workers: int, quiet: bool) -> None:
    """Compute the records that the run does not have yet."""
    if classifier is not None:
        check_same_classifier(out, classifier)
    with _shown_progress(quiet) as (update, tell), Processes(workers) as engine, _same_threads():

        def on_records(done: int, total: int, errors: dict[str, tuple[int, int]]) -> None:
            if classifier is not None:
                save_description(out, classifier)
            shown = (f"{name} {wrong / count:.1%}" for name, (wrong, count) in errors.items() if count)
            update(done, total, " · ".join(shown))

        run_evaluation(job, out, engine, on_records, tell, classifier)


@contextmanager
def _shown_progress(quiet: bool) -> Generator[tuple[ProgressUpdate, Callable[[str], None]]]:
    """Yield functions that show the progress and a line about the run."""
    if quiet:
        yield lambda done, total, note="": None, lambda line: None
        return
    console = Console(stderr=True)
    with progress("records") as update:
        yield update, lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _same_threads() -> Generator[None]:
    """Give torch its number of threads back, which the engine sets to that of free cores."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _specs(data: Any) -> list[str]:
    """Return data sets as the command line names them."""
    several = data if isinstance(data, list | tuple) else [data]
    if not several:
        raise DataError("data: expected a name, a path or a list of them, got none")
    for one in several:
        if isinstance(one, Dataset):
            raise DataError(
                f"data: expected a name or a path, got the data set {one.name!r}: "
                "give evaluate what you gave load_dataset"
            )
        if not isinstance(one, str | PathLike):
            raise DataError(f"data: expected a name, a path or a list of them, got {type(one).__name__}")
    return list(map(fspath, several))


def _name(classifier: Any) -> str:
    if not isinstance(classifier, Classifier):
        raise ConfigError(
            f"classifier: expected a Classifier or the name of a model, got {type(classifier).__name__}: "
            "wrap a module in mt.Classifier"
        )
    return classifier.name


def _several(name: str, values: Any) -> list[Any]:
    """Return one value, or several without repetition, as a list that JSON has."""
    listed = [values] if isinstance(values, str | int | np.integer) else list(dict.fromkeys(values))
    if not listed:
        raise ConfigError(f"{name}: expected at least one, got none")
    return [int(value) if isinstance(value, np.integer) else value for value in listed]


def _whole(name: str, value: Any, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < lowest:
        raise ConfigError(f"{name}: expected a whole number of at least {lowest}, got {value!r}")
    return int(value)


def _checked_options(options: Mapping[str, Any], methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options by method; raise for what a run cannot store."""
    for name, values in options.items():
        if not isinstance(values, Mapping):
            example = {methods[-1]: {name: values}}
            raise ConfigError(f"options: expected a dict by method, such as {example}, got {dict(options)}")
        if name not in methods:
            raise unknown_name("method in options", name, methods)
        for key, value in values.items():
            try:
                json.dumps(value)
            except TypeError:
                raise ConfigError(
                    f"options: {name}.{key}: expected a number, a string or None, got {value!r}: "
                    "a run stores its options, so that it can be resumed and repeated"
                ) from None
    return {name: dict(values) for name, values in options.items()}
