"""The tables of an HTML page as plain values."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from memo_tta.data.corruptions.severity import CORRUPTIONS, CorruptionLevel
from memo_tta.evaluation.comparison import MethodResult, ResultTable, differences
from memo_tta.evaluation.metrics import errors_by_class
from memo_tta.evaluation.recommendation import SOURCE
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.report import formatting
from memo_tta.report.paper_comparison import compare_with_paper
from memo_tta.report.run import Run

STRONGEST_TINT = 0.55  # opacity at which text stays readable
ALL_CLASSES, HARDEST_CLASSES = 30, 10  # show this many classes at most, else only the hardest ones


class Tint(NamedTuple):
    """A background colour and its opacity in 0..1."""

    colour: Literal["blue", "green", "red"]
    opacity: float


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str = ""
    detail: str = ""  # small print after the text
    kind: str = ""  # CSS class of the text
    tint: Tint | None = None
    bar: float | None = None  # a bar of this fraction of the width instead of text


@dataclass(frozen=True)
class Row:
    """A row of a table: its name and the other cells."""

    name: str
    cells: Sequence[Cell]
    kind: str = ""  # CSS class


@dataclass(frozen=True)
class Group:
    """Rows under a heading; an empty heading is left out."""

    rows: Sequence[Row]
    heading: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """A table with groups of rows."""

    titles: Sequence[str]
    groups: Sequence[Group]
    kind: str = ""  # CSS class
    caption: str = ""
    about: str = ""  # what stands above the table


def results_table(runs: Sequence[Run]) -> Table:
    """Return the results of all runs in the same columns, the methods of each model below its name."""
    rows = [row for run in runs for _, table in run.tables for row in table]
    has_tta = any(row.to_tta for row in rows)
    mces = formatting.mce_fields(rows)
    titles = ["method", "error %", *(formatting.MCE_TITLES[name] for name in mces)]
    titles += ["to source", "helped", "hurt", "p"]
    titles += ["to tta"] if has_tta else []
    titles += ["s/image", "views", "model", "predict"]
    groups = [
        Group(
            [_results_row(row, mces, has_tta) for row in table],
            run.heading(block, len(runs)),
            formatting.extent(block),
        )
        for run in runs
        for block, table in run.tables
    ]
    return Table(titles, groups, "wide")


def _results_row(row: MethodResult, mces: Sequence[str], has_tta: bool) -> Row:
    change = row.to_source
    cells = [Cell(formatting.percent(row.error), formatting.interval(row.low, row.high))]
    cells += [Cell("" if getattr(row, name) is None else f"{getattr(row, name):.1f}") for name in mces]
    cells.append(change_cell(change))
    counts = (str(change.helped), str(change.hurt), formatting.p_value(change.p)) if change else ("",) * 3
    cells += [Cell(text) for text in counts]
    cells += [change_cell(row.to_tta)] if has_tta else []
    times = (row.seconds, row.views_seconds, row.model_seconds, row.predict_seconds)
    cells += [Cell(formatting.seconds(time)) for time in times]
    return Row(row.method, cells, "method")


def summary_table(tables: Sequence[ResultTable]) -> Table:
    """Return one row per data set and method; a data set is named on its first row only."""
    rows = [
        Row(
            "" if index else block.dataset,
            [
                Cell(row.method),
                Cell(f"{formatting.percent(row.error)} %", formatting.interval(row.low, row.high)),
                change_cell(row.to_source),
                Cell(f"{formatting.milliseconds(row.seconds)} ms"),
                Cell(bar=row.error),
            ],
            "" if index else "first",
        )
        for block, results in tables
        for index, row in enumerate(results)
    ]
    return Table(["images", "method", "error", "to source", "per image", ""], [Group(rows)], "wide summary")


def change_cell(change: PairedComparison | None) -> Cell:
    """Return a change in percentage points with its interval, bold where that excludes zero."""
    if change is None:
        return Cell()
    is_significant = change.low > 0 or change.high < 0
    return Cell(
        formatting.minus_sign(formatting.percentage_points(change.difference)),
        formatting.minus_sign(formatting.change_interval(change)),
        formatting.change_kind(change.difference) + (" significant" if is_significant else ""),
    )


def paper_table(run: Run, block: ResultBlock, rows: Sequence[MethodResult]) -> Table | None:
    """Return the measured figures next to the paper's; None if the paper has none for this setting."""
    found = compare_with_paper(run, block, rows)
    if not found:
        return None
    unit = "error %" if all(row.mce is None for row in rows) else "mCE"
    titles = ["method", f"{unit}, here", f"{unit}, paper", "to source, here", "to source, paper"]
    body: list[Row] = []
    for comparison in found:
        cells = [Cell(f"{value:.1f}") for value in (comparison.measured, comparison.paper)]
        changes = (comparison.change, comparison.paper_change)
        cells += [_percentage_points_cell(change / 100) for change in changes if change is not None]
        body.append(Row(comparison.row.method, cells))
    return Table(titles, [Group(body)])


def _percentage_points_cell(fraction: float) -> Cell:
    text = formatting.minus_sign(formatting.percentage_points(fraction))
    return Cell(text, kind=formatting.change_kind(fraction))


def heat_maps(block: ResultBlock) -> list[Table]:
    """Return tables by corruption and level: the first method's error, and the others' change to it."""
    first, *others = block.methods
    errors = block.errors(first)
    highest = max(errors.values()) or 1.0

    def error_cell(error: float) -> Cell:
        return Cell(formatting.percent(error), tint=_tint("blue", error / highest))

    changes = {method: differences(block, method, first) for method in others}
    largest = max((abs(d) for change in changes.values() for d in change.values()), default=0.0) or 1.0

    def change_cell(difference: float) -> Cell:
        tint = _tint("green" if difference < 0 else "red", abs(difference) / largest)
        return Cell(formatting.minus_sign(formatting.percentage_points(difference)), tint=tint)

    maps = [_heat_map(f"{first}: error %", errors, error_cell)]
    for method, change in changes.items():
        if change:
            maps.append(_heat_map(f"{method}: to {first}", change, change_cell))
    return maps


def _heat_map(
    caption: str, values: Mapping[CorruptionLevel, float], make_cell: Callable[[float], Cell]
) -> Table:
    levels = sorted({shift.severity for shift in values})
    found = dict.fromkeys(shift.corruption for shift in values)
    corruptions = [name for name in CORRUPTIONS if name in found]
    corruptions += [name for name in found if name not in CORRUPTIONS]
    rows: list[Row] = []
    for name in corruptions:
        errors = [values.get(CorruptionLevel(name, level)) for level in levels]
        rows.append(Row(name.replace("_", " "), [Cell() if e is None else make_cell(e) for e in errors]))
    return Table(["level", *map(str, levels)], [Group(rows)], "tinted", caption)


def class_table(block: ResultBlock, names: Sequence[str]) -> Table:
    """Return each class's error by method; the first rows are the classes with the largest error of source.

    If there are many classes, the table has only those. Its caption says what it shows.
    """
    by_method = {method: errors_by_class(block, method, len(names)) for method in block.methods}
    hardest_for = SOURCE if SOURCE in by_method else block.methods[0]
    counts = np.bincount(block.pooled(hardest_for).target, minlength=len(names))
    found: list[int] = np.flatnonzero(counts).tolist()
    classes = sorted(found, key=lambda index: -by_method[hardest_for][index])
    if len(found) > ALL_CLASSES:
        classes = classes[:HARDEST_CLASSES]
    rows: list[Row] = []
    for index in classes:
        values = [float(errors[index]) for errors in by_method.values()]
        cells = [
            Cell() if math.isnan(error) else Cell(formatting.percent(error), tint=_tint("blue", error))
            for error in values
        ]
        rows.append(Row(names[index], [Cell(str(counts[index]), kind="plain"), *cells]))
    shown = f"All {len(found)} classes" if len(rows) == len(found) else f"{len(rows)} of {len(found)} classes"
    about = f"{shown}, those with the largest error of {hardest_for} first: error in percent."
    return Table(["class", "images", *by_method], [Group(rows)], "tinted", about=about)


def _tint(colour: Literal["blue", "green", "red"], strength: float) -> Tint:
    return Tint(colour, STRONGEST_TINT * min(1.0, strength))
