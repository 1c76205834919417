"""The tables of a run's page. Whatever comes from the run is escaped here."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

import numpy as np

from memo_tta.data.corruptions.severity import CORRUPTIONS
from memo_tta.evaluation.analysis import (
    CorruptionLevel,
    MethodResult,
    ResultBlock,
    differences,
    errors_by_class,
)
from memo_tta.evaluation.statistics import Paired
from memo_tta.report import formatting
from memo_tta.report.paper_comparison import compare_with_paper
from memo_tta.report.run import Run
from memo_tta.report.terminal import TITLES

BLUE, GREEN, RED = "3, 105, 161", "21, 128, 61", "185, 28, 28"
STRONGEST = 0.55  # tint, so that ink stays readable on it
ALL_CLASSES, WORST_CLASSES = 30, 10


def main_table(runs: Sequence[Run]) -> str:
    """Every run in the same columns: a model on its data, and below it the methods."""
    rows = [row for run in runs for _, table in run.tables for row in table]
    has_tta = any(row.to_tta for row in rows)
    mces = [name for name in TITLES if any(getattr(row, name) is not None for row in rows)]
    titles = ["method", "error %", *(TITLES[name] for name in mces), "to source", "helped", "hurt", "p"]
    titles += ["to tta"] if has_tta else []
    titles += ["s/point", "views", "model", "predict"]
    body = []
    for run in runs:
        for block, table in run.tables:
            body.append(
                f'<tr class="model"><th colspan="{len(titles)}">{escape(run.heading(block, len(runs)))} '
                f"<small>{escape(formatting.extent(block))}</small></th></tr>"
            )
            body += [_main_row(row, mces, has_tta) for row in table]
    return _table(titles, body, "wide")


def _main_row(row: MethodResult, mces: Sequence[str], has_tta: bool) -> str:
    change = row.to_source
    cells = [f"<td>{formatting.percent(row.error)}<small>{formatting.span(row.low, row.high)}</small></td>"]
    cells += [_cell("" if getattr(row, name) is None else f"{getattr(row, name):.1f}") for name in mces]
    cells.append(_change_cell(change))
    counts = (
        (str(change.helped), str(change.hurt), escape(formatting.p_value(change.p))) if change else ("",) * 3
    )
    cells += [_cell(text) for text in counts]
    cells += [_change_cell(row.to_tta)] if has_tta else []
    times = (row.seconds, row.views_seconds, row.model_seconds, row.predict_seconds)
    cells += [_cell(formatting.seconds(time)) for time in times]
    return f'<tr class="method"><th>{escape(row.method)}</th>{"".join(cells)}</tr>'


def _change_cell(change: Paired | None) -> str:
    if change is None:
        return "<td></td>"
    text = formatting.minus(formatting.points(change.difference))
    span = formatting.minus(formatting.change_span(change))
    kind = formatting.kind(change.difference) + (" sure" if change.low > 0 or change.high < 0 else "")
    return f'<td><span class="{kind}">{text}</span><small>{span}</small></td>'


def paper_table(run: Run, block: ResultBlock, rows: Sequence[MethodResult]) -> str:
    """Ours beside the paper's, where the setting is the paper's; else nothing."""
    found = compare_with_paper(run, block, rows)
    if not found:
        return ""
    unit = "error %" if all(row.mce is None for row in rows) else "mCE"
    titles = ["method", f"{unit}, here", f"{unit}, paper", "to source, here", "to source, paper"]
    body = []
    for beside in found:
        cells = [_cell(f"{value:.1f}") for value in (beside.ours, beside.theirs)]
        changes = (beside.change, beside.their_change)
        cells += [_points_cell(change) for change in changes if change is not None]
        body.append(f"<tr><th>{escape(beside.row.method)}</th>{''.join(cells)}</tr>")
    return _table(titles, body)


def _points_cell(percentage_points: float) -> str:
    text = formatting.points(percentage_points / 100)
    return f'<td class="{formatting.kind(percentage_points / 100)}">{formatting.minus(text)}</td>'


def heat_maps(block: ResultBlock) -> str:
    """Corruption by level: the error of the first method, and of others what they change in it."""
    first, *others = block.methods
    errors = block.errors(first)
    top = max(errors.values()) or 1.0
    maps = [_heat_map(f"{first}: error %", errors, lambda e: (formatting.percent(e), _tint(BLUE, e / top)))]
    changes = {method: differences(block, method, first) for method in others}
    widest = max((abs(d) for change in changes.values() for d in change.values()), default=0.0) or 1.0

    def change_cell(difference: float) -> tuple[str, str]:
        tint = _tint(GREEN if difference < 0 else RED, abs(difference) / widest)
        return formatting.minus(formatting.points(difference)), tint

    maps += [
        _heat_map(f"{name}: to {first}", change, change_cell) for name, change in changes.items() if change
    ]
    return f'<div class="maps">{"".join(maps)}</div>'


def _heat_map(
    caption: str, values: Mapping[CorruptionLevel, float], shown: Callable[[float], tuple[str, str]]
) -> str:
    levels = sorted({shift.severity for shift in values})
    found = dict.fromkeys(shift.corruption for shift in values)
    corruptions = [name for name in CORRUPTIONS if name in found]
    corruptions += [name for name in found if name not in CORRUPTIONS]
    body = []
    for name in corruptions:
        cells = []
        for level in levels:
            value = values.get(CorruptionLevel(name, level))
            text, tint = ("", "") if value is None else shown(value)
            cells.append(f'<td style="{tint}">{text}</td>')
        body.append(f"<tr><th>{escape(name.replace('_', ' '))}</th>{''.join(cells)}</tr>")
    return _table(["level", *map(str, levels)], body, "tinted", caption)


def class_table(block: ResultBlock, names: Sequence[str]) -> str:
    """The error of each class by method; of many classes, those that the first method finds hardest."""
    errors = {method: errors_by_class(block, method, len(names)) for method in block.methods}
    first = errors[block.methods[0]]
    counts = np.bincount(block.pooled(block.methods[0]).target, minlength=len(names))
    present = np.flatnonzero(counts).tolist()
    if len(present) > ALL_CLASSES:
        present = sorted(present, key=lambda index: -first[index])[:WORST_CLASSES]
    body = []
    for index in present:
        values = [values[index] for values in errors.values()]
        cells = "".join(
            "<td></td>" if math.isnan(e) else f'<td style="{_tint(BLUE, e)}">{formatting.percent(e)}</td>'
            for e in values
        )
        body.append(f'<tr><th>{escape(names[index])}</th><td class="plain">{counts[index]}</td>{cells}</tr>')
    return _table(["class", "points", *errors], body, "tinted")


def _table(titles: Sequence[str], body: Sequence[str], kind: str = "", caption: str = "") -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    caption = f"<caption>{escape(caption)}</caption>" if caption else ""
    rows = "\n".join(body)
    return f'<table class="{kind}">{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>'


def _cell(text: str) -> str:
    return f"<td>{text}</td>"


def _tint(colour: str, strength: float) -> str:
    return f"background: rgba({colour}, {STRONGEST * min(1.0, strength):.2f})"
