"""`advise`: which method to use, found out from Python, with the race of `memo advise`."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memo_tta.api.arguments import Spec, data_spec, model_name, several, whole_number
from memo_tta.api.computation import check_workers, computation
from memo_tta.api.run_classifier import check_same_classifier, save_description
from memo_tta.api.table import notebook_html
from memo_tta.errors import ConfigError
from memo_tta.evaluation.advice import Advice, AdviceRequest, prepare_race
from memo_tta.evaluation.advice import advise as run_race
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.recommendation import MethodLimits
from memo_tta.evaluation.time_limits import parse_seconds
from memo_tta.files import atomic_file, check_output_file, check_output_folder
from memo_tta.methods import METHODS
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import load
from memo_tta.report.advice import advice_config, advice_lines, advice_text, advise_command, race_cost
from memo_tta.report.advice_page import advice_page, advice_table


class AdvisedMethod:
    """The method that `advise` recommends, and why: text when printed, a table in a notebook."""

    def __init__(self, advice: Advice, request: AdviceRequest):
        self._advice, self._command = advice, advise_command(request)

    @property
    def method(self) -> str:
        """The name of the recommended method."""
        return self._advice.method

    @property
    def options(self) -> Mapping[str, Any]:
        """Its options, other than the defaults."""
        return self._advice.options

    def create(self, classifier: Classifier) -> Any:
        """Return the recommended method for a classifier."""
        return METHODS[self.method](classifier, **self.options)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the config file that `memo predict`, `memo evaluate` and `memo serve` take with --config."""
        _write(Path(path), advice_config(self._advice, self._command))

    def report(self, path: str | PathLike[str]) -> None:
        """Write a self-contained HTML page with the recommendation, a plot and a table."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        use = f'predict = memo_tta.method("{self.method}", classifier{options})'
        _write(Path(path), advice_page(self._advice, self._command, [use, "predict(image)"]))

    def __repr__(self) -> str:
        return advice_text(self._advice)

    def _repr_html_(self) -> str:
        return notebook_html("advice", advice_table(self._advice), advice_lines(self._advice))


def advise(
    data: Spec,
    classifier: Classifier | str,
    *,
    budget: str | float | None = None,
    harm: float = 0.5,
    shifted: Spec | None = None,
    stream: bool = False,
    limit: int = 200,
    severities: int | Sequence[int] = 4,
    time_limit: str | float = "10min",
    seed: int = 0,
    out: str | PathLike[str] | None = None,
    workers: int = 1,
    skip_bad: bool = False,
    quiet: bool = False,
) -> AdvisedMethod:
    """Find out which method to use with a classifier, from labelled, clean images.

    Methods race: all predict a few images, clean and shifted, and the promising ones more. The one with the
    fewest errors on shifted images is recommended; errors that it adds on clean images beyond `harm`
    percentage points count against it. Methods that are proven to exceed `harm`, or that take longer than
    `budget`, are left out. If nothing helps without harm, `source` is recommended, the model as it is.
    Shifted images are made from `data` by the four validation corruptions at these `severities`, or are
    `shifted`. With `stream`, methods that learn from image to image race, too.

    `data` and `shifted` are names from `memo datasets` or paths, of which `limit` images are used. `budget`
    and `time_limit`, for the whole race, are like "100ms" and "10min", or seconds. `out` is a folder for the
    records, from which the same call continues; without it, they are not kept. A classifier that is named by
    a string can have several `workers`. `quiet` shows no progress.
    """
    workers = whole_number("workers", workers, 1)
    check_workers(workers, classifier)
    job = EvaluationJob(
        data=(data_spec("data", data),),
        model=model_name(classifier),
        limit=whole_number("limit", limit, 1),
        seed=whole_number("seed", seed, 0),
        skip_bad=skip_bad,
    )
    request = AdviceRequest(
        job,
        None if shifted is None else data_spec("shifted", shifted),
        several("severities", severities),
        stream,
        MethodLimits(_points("harm", harm) / 100, math.inf if budget is None else _seconds("budget", budget)),
    )
    seconds = _seconds("time_limit", time_limit)
    loaded = load(classifier) if isinstance(classifier, str) else classifier
    with nullcontext(out) if out is not None else TemporaryDirectory(prefix="memo-advise-") as folder:
        return AdvisedMethod(_advise(request, Path(folder), loaded, seconds, workers, quiet), request)


def _advise(
    request: AdviceRequest, folder: Path, classifier: Classifier, seconds: float, workers: int, quiet: bool
) -> Advice:
    check_output_folder(folder)
    check_same_classifier(folder, classifier)
    race = prepare_race(request, folder, classifier)
    with computation("predictions", workers, quiet) as (engine, update, tell):
        tell(race_cost(race, seconds))
        save_description(folder, classifier)
        return run_race(race, engine, seconds, update)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, str):
        return parse_seconds(name, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(
            f'{name}: expected a time like "100ms" or a positive number of seconds, got {value!r}'
        )
    return float(value)


def _points(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ConfigError(f"{name}: expected percentage points, a number of at least 0, got {value!r}")
    return float(value)


def _write(path: Path, text: str) -> None:
    check_output_file(path)
    with atomic_file(path) as temporary:
        # A path of the data may hold bytes that are not text.
        temporary.write_text(text, "utf-8", "backslashreplace")
