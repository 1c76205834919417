"""The tables of a run's page. Whatever comes from the run is escaped here."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

import numpy as np

from memo_tta.data.corruptions.severity import CORRUPTIONS
from memo_tta.evaluation.analysis import Block, Row, Shift, differences, errors_by_class
from memo_tta.evaluation.statistics import Paired
from memo_tta.report import written
from memo_tta.report.beside import beside_paper
from memo_tta.report.run import Run
from memo_tta.report.run_table import TITLES

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
                f"<small>{escape(written.extent(block))}</small></th></tr>"
            )
            body += [_main_row(row, mces, has_tta) for row in table]
    return _table(titles, body, "wide")


def _main_row(row: Row, mces: Sequence[str], has_tta: bool) -> str:
    change = row.to_source
    cells = [f"<td>{written.percent(row.error)}<small>{written.span(row.low, row.high)}</small></td>"]
    cells += [_cell("" if getattr(row, name) is None else f"{getattr(row, name):.1f}") for name in mces]
    cells.append(_change_cell(change))
    counts = (
        (str(change.helped), str(change.hurt), escape(written.p_value(change.p))) if change else ("",) * 3
    )
    cells += [_cell(text) for text in counts]
    cells += [_change_cell(row.to_tta)] if has_tta else []
    times = (row.seconds, row.views_seconds, row.model_seconds, row.predict_seconds)
    cells += [_cell(written.seconds(time)) for time in times]
    return f'<tr class="method"><th>{escape(row.method)}</th>{"".join(cells)}</tr>'


def _change_cell(change: Paired | None) -> str:
    if change is None:
        return "<td></td>"
    text = written.minus(written.points(change.difference))
    span = written.minus(written.change_span(change))
    kind = written.kind(change.difference) + (" sure" if change.low > 0 or change.high < 0 else "")
    return f'<td><span class="{kind}">{text}</span><small>{span}</small></td>'


def paper_table(run: Run, block: Block, rows: Sequence[Row]) -> str:
    """Ours beside the paper's, where the setting is the paper's; else nothing."""
    found = beside_paper(run, block, rows)
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
    text = written.points(percentage_points / 100)
    return f'<td class="{written.kind(percentage_points / 100)}">{written.minus(text)}</td>'


def heat_maps(block: Block) -> str:
    """Corruption by level: the error of the first method, and of others what they change in it."""
    first, *others = block.methods
    errors = block.errors(first)
    top = max(errors.values()) or 1.0
    maps = [_heat_map(f"{first}: error %", errors, lambda e: (written.percent(e), _tint(BLUE, e / top)))]
    changes = {method: differences(block, method, first) for method in others}
    widest = max((abs(d) for change in changes.values() for d in change.values()), default=0.0) or 1.0

    def change_cell(difference: float) -> tuple[str, str]:
        tint = _tint(GREEN if difference < 0 else RED, abs(difference) / widest)
        return written.minus(written.points(difference)), tint

    maps += [
        _heat_map(f"{name}: to {first}", change, change_cell) for name, change in changes.items() if change
    ]
    return f'<div class="maps">{"".join(maps)}</div>'


def _heat_map(caption: str, values: Mapping[Shift, float], shown: Callable[[float], tuple[str, str]]) -> str:
    levels = sorted({shift.severity for shift in values})
    found = dict.fromkeys(shift.corruption for shift in values)
    corruptions = [name for name in CORRUPTIONS if name in found]
    corruptions += [name for name in found if name not in CORRUPTIONS]
    body = []
    for name in corruptions:
        cells = []
        for level in levels:
            value = values.get(Shift(name, level))
            text, tint = ("", "") if value is None else shown(value)
            cells.append(f'<td style="{tint}">{text}</td>')
        body.append(f"<tr><th>{escape(name.replace('_', ' '))}</th>{''.join(cells)}</tr>")
    return _table(["level", *map(str, levels)], body, "tinted", caption)


def class_table(block: Block, names: Sequence[str]) -> str:
    """The error of each class by method; of many classes, those that the first method finds hardest."""
    errors = {method: errors_by_class(block, method, len(names)) for method in block.methods}
    first = errors[block.methods[0]]
    counts = np.bincount(block.pooled(block.methods[0]).label, minlength=len(names))
    present = np.flatnonzero(counts).tolist()
    if len(present) > ALL_CLASSES:
        present = sorted(present, key=lambda index: -first[index])[:WORST_CLASSES]
    body = []
    for index in present:
        values = [values[index] for values in errors.values()]
        cells = "".join(
            "<td></td>" if math.isnan(e) else f'<td style="{_tint(BLUE, e)}">{written.percent(e)}</td>'
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
