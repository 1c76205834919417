"""`evaluate`: compare methods on labelled data from Python, with the records of `memo evaluate`."""

import json
import weakref
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from memo_tta.api.arguments import Spec, data_specs, model_name, several, whole_number
from memo_tta.api.computation import check_workers, computation
from memo_tta.api.results import Results
from memo_tta.api.run_classifier import check_same_classifier, save_description
from memo_tta.errors import ConfigError
from memo_tta.evaluation.driver import evaluate as run_evaluation
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.models.classifier import Classifier
from memo_tta.registry import unknown_name


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
    names = several("methods", methods)
    job = EvaluationJob(
        data=data_specs(data),
        model=model_name(classifier),
        methods=names,
        options=_checked_options(options or {}, names),
        corruptions=None if corruptions is None else several("corruptions", corruptions),
        severities=None if severities is None else several("severities", severities),
        order=order,
        limit=None if limit is None else whole_number("limit", limit, 1),
        seed=whole_number("seed", seed, 0),
        skip_bad=skip_bad,
    )
    workers = whole_number("workers", workers, 1)
    check_workers(workers, classifier)
    loaded = None if isinstance(classifier, str) else classifier
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
    with computation("records", workers, quiet) as (engine, update, tell):

        def on_records(done: int, total: int, errors: dict[str, tuple[int, int]]) -> None:
            if classifier is not None:
                save_description(out, classifier)
            shown = (f"{name} {wrong / count:.1%}" for name, (wrong, count) in errors.items() if count)
            update(done, total, " · ".join(shown))

        run_evaluation(job, out, engine, on_records, tell, classifier)


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
