"""Results on the terminal, in the form of the paper's tables: a model, and below it its methods."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memo_tta.evaluation.comparison import MethodResult, ResultTable
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.report import formatting
from memo_tta.report.conclusion import suggestion_lines
from memo_tta.report.pairing import settings
from memo_tta.report.run import Run

COLOURS = {"better": "green", "worse": "red", "same": "dim"}
UNLIMITED = 1000  # columns, for measuring a table

Column = tuple[str, Callable[[MethodResult], str | Text]]  # title, and the cell of a row


def print_runs(runs: Sequence[Run], console: Console) -> None:
    """Print all runs in one table, or in two if the terminal is too narrow; then their extents and notes."""
    wide = Console(width=UNLIMITED)
    errors, rest = _columns(runs)
    whole = _run_table(runs, [*errors, *rest])
    needed = wide.measure(whole).maximum
    if not console.is_terminal:
        console.width = needed
    tables = [whole] if needed <= console.width else [_run_table(runs, part) for part in (errors, rest)]
    for table in tables:
        console.print(table)
    for remark in _remarks(runs):
        console.print(remark, markup=False, soft_wrap=True)


def print_suggestions(runs: Sequence[Run], console: Console) -> None:
    """Print what the runs suggest; the last line is the suggestion."""
    console.print()
    for line in suggestion_lines(settings(runs), len(runs)):
        console.print(line, markup=False, soft_wrap=True)


def summary_table(tables: Sequence[ResultTable]) -> Table:
    """Return a compact table: one line per data set and method; a data set is named on its first line."""
    difference, _ = _change_columns("to source", lambda row: row.to_source)
    columns: list[Column] = [
        *_error_columns(),
        difference,
        ("ms/image", lambda row: formatting.milliseconds(row.seconds)),
    ]
    table = _empty_table(["data", "method"], columns)
    for block, rows in tables:
        for index, row in enumerate(rows):
            names = Text("" if index else block.dataset), Text(row.method)
            table.add_row(*names, *(cell(row) for _, cell in columns))
    return table


def _run_table(runs: Sequence[Run], columns: Sequence[Column]) -> Table:
    """Return a table with one line per method; errors are in percent, seconds are medians per image."""
    table = _empty_table(["method"], columns)
    for run in runs:
        for block, rows in run.tables:
            table.add_row(Text(run.heading(block, len(runs)), style="bold"))
            for row in rows:
                table.add_row(Text(f"  {row.method}"), *(cell(row) for _, cell in columns))
    return table


def _empty_table(names: Sequence[str], columns: Sequence[Column]) -> Table:
    table = Table(*names, box=None, pad_edge=False, header_style="bold")
    for title, _ in columns:
        table.add_column(title, justify="right")
    return table


def _columns(runs: Sequence[Run]) -> tuple[list[Column], list[Column]]:
    """Return the columns of errors and changes to source, and all others."""
    rows = [row for run in runs for _, table in run.tables for row in table]
    errors: list[Column] = [
        *_error_columns(),
        *(_mce_column(name) for name in formatting.mce_fields(rows)),
        *_change_columns("to source", lambda row: row.to_source),
        ("helped", lambda row: str(row.to_source.helped) if row.to_source else ""),
        ("hurt", lambda row: str(row.to_source.hurt) if row.to_source else ""),
        ("p", lambda row: formatting.p_value(row.to_source.p) if row.to_source else ""),
    ]
    rest: list[Column] = [
        *(_change_columns("to tta", lambda row: row.to_tta) if any(row.to_tta for row in rows) else ()),
        ("s/image", lambda row: formatting.seconds(row.seconds)),
        ("views", lambda row: formatting.seconds(row.views_seconds)),
        ("model", lambda row: formatting.seconds(row.model_seconds)),
        ("predict", lambda row: formatting.seconds(row.predict_seconds)),
    ]
    return errors, rest


def _error_columns() -> tuple[Column, Column]:
    return (
        ("error %", lambda row: formatting.percent(row.error)),
        ("95 %", lambda row: formatting.interval(row.low, row.high)),
    )


def _mce_column(name: str) -> Column:
    def cell(row: MethodResult) -> str:
        value: float | None = getattr(row, name)
        return "" if value is None else f"{value:.1f}"

    return formatting.MCE_TITLES[name], cell


def _change_columns(
    title: str, get: Callable[[MethodResult], PairedComparison | None]
) -> tuple[Column, Column]:
    def difference(row: MethodResult) -> Text:
        change = get(row)
        if change is None:
            return Text()
        style = COLOURS[formatting.change_kind(change.difference)]
        return Text(formatting.percentage_points(change.difference), style=style)

    def interval(row: MethodResult) -> str:
        change = get(row)
        return "" if change is None else formatting.change_interval(change)

    return (title, difference), ("95 %", interval)


def _remarks(runs: Sequence[Run]) -> list[str]:
    """Return the lines below the table: the extent of each block, then the notes of each run."""
    extents = [
        f"{run.heading(block, len(runs))}: {formatting.extent(block)}" for run in runs for block in run.blocks
    ]
    return extents + [f"{run.folder}: {note}" for run in runs for note in run.notes]
