"""Advice in words: on the terminal, in a notebook, and as a config file."""

import io
import math
import shlex

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memo_tta.evaluation.advice import Advice, AdviceRequest, TriedCandidate
from memo_tta.evaluation.config_file import config_text
from memo_tta.evaluation.race import Race
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.report import formatting
from memo_tta.report.gain_and_harm import verdict
from memo_tta.report.run import model_words
from memo_tta.report.suggestion import doubts, milliseconds, sentence

COLUMNS = ("method", "shifted", "95 %", "clean", "95 %", "ms", "predictions", "")
UNLIMITED = 1000  # columns, for measuring a table


def race_cost(race: Race, seconds: float) -> str:
    """Say what a race will do, and how long it may take."""
    names = ", ".join(race.candidates)
    return (
        f"{len(race.candidates)} candidates ({names}) on up to {race.images} images, clean and shifted: "
        f"about {_duration(seconds)} at most"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def advise_command(request: AdviceRequest) -> str:
    """Return the `memo advise` command line of a request, without its output."""
    job, limits = request.job, request.limits
    words = ["memo", "advise", *job.data, *model_words(job)]
    words += [] if request.shifted is None else ["--shifted", request.shifted]
    words += ["--severities", ",".join(map(str, request.severities))]
    words += [
        *["--stream"] * request.is_stream,
        "--limit",
        str(job.limit),
        "--harm",
        f"{100 * limits.harm:g}",
    ]
    words += [] if math.isinf(limits.seconds) else ["--budget", f"{1000 * limits.seconds:g}ms"]
    return shlex.join([*words, "--seed", str(job.seed), *["--skip-bad"] * job.skip_bad])


def advice_lines(advice: Advice) -> list[str]:
    """Return the recommendation, how sure it is, and the source's errors, a sentence each."""
    recommendation = advice.recommendation
    return [sentence(recommendation), *doubts(recommendation, advice.limits), source_errors(advice)]


def print_advice(advice: Advice, console: Console) -> None:
    """Print one row per candidate, then the recommendation."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS:
        table.add_column(title, justify="left" if title in ("method", "") else "right", no_wrap=True)
    for each in advice.tried:
        style = "bold green" if each.candidate == advice.chosen else ""
        table.add_row(*(Text(cell, style=style) for cell in _cells(advice, each)))
    if not console.is_terminal:
        console.width = Console(width=UNLIMITED).measure(table).maximum
    console.print(table)
    for line in advice_lines(advice):
        console.print(line, markup=False, soft_wrap=True)


def advice_config(advice: Advice, command: str) -> str:
    """Return the config file that makes other commands use the recommended method."""
    rows = [COLUMNS, *(_cells(advice, each) for each in advice.tried)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(map(str.ljust, row, widths)) for row in rows]
    return config_text(
        advice.method,
        {advice.method: advice.options} if advice.options else {},
        [f"Made by: {command}", *advice_lines(advice)],
        table,
    )


def advice_text(advice: Advice) -> str:
    """Return what `print_advice` prints."""
    file = io.StringIO()
    print_advice(advice, Console(file=file, highlight=False))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def outcome(advice: Advice, each: TriedCandidate) -> str:
    """Return what became of a candidate, in a few words."""
    if each.candidate == advice.chosen:
        return "recommended"
    return each.dropped or verdict(each.assessment, advice.limits)


def _cells(advice: Advice, each: TriedCandidate) -> list[str]:
    assessment = each.assessment
    return [
        assessment.method,
        *_change(assessment.gain),
        *_change(assessment.harm),
        milliseconds(assessment.seconds),
        str(each.predictions),
        outcome(advice, each),
    ]


def _change(change: PairedComparison | None) -> tuple[str, str]:
    if change is None:
        return "", ""
    difference = formatting.minus_sign(formatting.percentage_points(change.difference))
    return difference, formatting.minus_sign(formatting.change_interval(change))


def source_errors(advice: Advice) -> str:
    """Return the errors of the model as it is, as one sentence."""
    blocks = {"shifted": advice.shifted, "clean": advice.clean}
    errors = (
        f"{formatting.percent(error)} % on {name} images ({formatting.interval(low, high)})"
        for name, block in blocks.items()
        if block is not None
        for error, low, high in [advice.source_error(block)]
    )
    return f"The error of the model as it is: {', '.join(errors)}."
