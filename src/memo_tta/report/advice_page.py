"""Advice as a page: the recommendation, its evidence as a plot and a table, and how to use it."""

from collections.abc import Sequence

from memo_tta.evaluation.advice import Advice, TriedCandidate
from memo_tta.evaluation.recommendation import SOURCE
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.report.advice import outcome, source_errors
from memo_tta.report.error_and_time_plot import ErrorRate, PlottedMethod, error_and_time_plot
from memo_tta.report.html import TEMPLATES, data_url
from memo_tta.report.html_tables import Cell, Group, Row, Table, change_cell
from memo_tta.report.suggestion import doubts, milliseconds, sentence

TITLES = ("method", "on shifted images", "on clean images", "ms/image", "predictions", "outcome")


def advice_page(advice: Advice, command: str, next_steps: Sequence[str]) -> str:
    """Return the page; `command` made the advice, and `next_steps` are commands that use it."""
    return TEMPLATES.get_template("advice.html").render(
        title="Which method to use",
        sentence=sentence(advice.recommendation),
        doubts=list(doubts(advice.recommendation, advice.limits)),
        source_errors=source_errors(advice),
        error_and_time=data_url(
            "svg+xml", error_and_time_plot([_cost(advice, each) for each in advice.tried])
        ),
        methods=advice_table(advice),
        next_steps=next_steps,
        command=command,
    )


def advice_table(advice: Advice) -> Table:
    """Return a row for each candidate of the race."""
    return Table(TITLES, [Group([_row(advice, each) for each in advice.tried])], "wide verdicts")


def _row(advice: Advice, each: TriedCandidate) -> Row:
    found = each.assessment
    cells = [change_cell(found.gain), change_cell(found.harm), Cell(milliseconds(found.seconds))]
    cells += [Cell(f"{each.predictions:,}"), Cell(outcome(advice, each))]
    return Row(found.method, cells, "chosen" if each.candidate == advice.chosen else "")


def _cost(advice: Advice, each: TriedCandidate) -> PlottedMethod:
    found = each.assessment
    return PlottedMethod(
        found.method,
        found.seconds,
        None if advice.clean is None else _error_rate(advice, advice.clean, found.method, found.harm),
        _error_rate(advice, advice.shifted, found.method, found.gain),
    )


def _error_rate(
    advice: Advice, block: ResultBlock, method: str, change: PairedComparison | None
) -> ErrorRate | None:
    """Return the source's error, plus a method's change on the images that both have seen."""
    error, low, high = advice.source_error(block)
    if method == SOURCE:
        return ErrorRate(error, low, high)
    if change is None:
        return None
    ends = (change.difference, change.low, change.high)
    return ErrorRate(*(min(max(error + end, 0.0), 1.0) for end in ends))
