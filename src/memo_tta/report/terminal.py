"""Runs on the terminal, in the form of the paper's tables: a model, and below it its methods."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memo_tta.evaluation.analysis import MethodResult
from memo_tta.evaluation.statistics import Paired
from memo_tta.report import formatting
from memo_tta.report.run import Run

TITLES = {"mce": "mCE", "relative_mce": "rel. mCE"}
COLOURS = {"better": "green", "worse": "red", "same": "dim"}
UNLIMITED = 1000  # columns, where no terminal sets a limit

Column = tuple[str, Callable[[MethodResult], str | Text]]


def print_runs(runs: Sequence[Run], console: Console) -> None:
    """All runs in the same columns, in two tables where the terminal is too narrow for one."""
    wide = Console(width=UNLIMITED)
    errors, rest = _columns(runs)
    whole = _table(runs, [*errors, *rest])
    needed = wide.measure(whole).maximum
    if not console.is_terminal:
        console.width = needed
    for table in [whole] if needed <= console.width else [_table(runs, part) for part in (errors, rest)]:
        console.print(table)
    for remark in _remarks(runs):
        console.print(remark, markup=False, soft_wrap=True)


def _table(runs: Sequence[Run], columns: Sequence[Column]) -> Table:
    """One line per method; errors and differences are in percent, seconds are medians per point."""
    table = Table("method", box=None, pad_edge=False, header_style="bold")
    for title, _ in columns:
        table.add_column(title, justify="right")
    for run in runs:
        for block, rows in run.tables:
            table.add_row(Text(run.heading(block, len(runs)), style="bold"))
            for row in rows:
                table.add_row(Text(f"  {row.method}"), *(cell(row) for _, cell in columns))
    return table


def _columns(runs: Sequence[Run]) -> tuple[list[Column], list[Column]]:
    """Errors against source, and all the rest."""
    rows = [row for run in runs for _, table in run.tables for row in table]
    errors: list[Column] = [
        ("error %", lambda row: formatting.percent(row.error)),
        ("95 %", lambda row: formatting.span(row.low, row.high)),
        *(
            (title, lambda row, name=name: _number(getattr(row, name)))
            for name, title in TITLES.items()
            if any(getattr(row, name) is not None for row in rows)
        ),
        *_change("to source", lambda row: row.to_source),
        ("helped", lambda row: str(row.to_source.helped) if row.to_source else ""),
        ("hurt", lambda row: str(row.to_source.hurt) if row.to_source else ""),
        ("p", lambda row: formatting.p_value(row.to_source.p) if row.to_source else ""),
    ]
    rest: list[Column] = [
        *(_change("to tta", lambda row: row.to_tta) if any(row.to_tta for row in rows) else ()),
        ("s/point", lambda row: formatting.seconds(row.seconds)),
        ("views", lambda row: formatting.seconds(row.views_seconds)),
        ("model", lambda row: formatting.seconds(row.model_seconds)),
        ("predict", lambda row: formatting.seconds(row.predict_seconds)),
    ]
    return errors, rest


def _change(title: str, get: Callable[[MethodResult], Paired | None]) -> tuple[Column, Column]:
    def difference(row: MethodResult) -> Text:
        change = get(row)
        if change is None:
            return Text()
        return Text(formatting.points(change.difference), style=COLOURS[formatting.kind(change.difference)])

    def interval(row: MethodResult) -> str:
        change = get(row)
        return "" if change is None else formatting.change_span(change)

    return (title, difference), ("95 %", interval)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _remarks(runs: Sequence[Run]) -> list[str]:
    """What stands below the table."""
    extents = [
        f"{run.heading(block, len(runs))}: {formatting.extent(block)}" for run in runs for block in run.blocks
    ]
    return extents + [f"{run.folder}: {note}" for run in runs for note in run.notes]
