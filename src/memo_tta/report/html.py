"""Self-contained HTML pages: plain values for the templates, which load nothing from the network."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from memo_tta.evaluation.comparison import MethodResult, ResultTable
from memo_tta.evaluation.metrics import calibration
from memo_tta.evaluation.results import ResultBlock
from memo_tta.report.conclusion import Conclusion, conclude
from memo_tta.report.error_and_time_plot import LABELS, ErrorRate, PlottedMethod, error_and_time_plot
from memo_tta.report.examples import examples, only_averages, shown_method
from memo_tta.report.gain_and_harm import gain_and_harm_table
from memo_tta.report.html_tables import (
    Table,
    class_table,
    heat_maps,
    paper_table,
    results_table,
    summary_table,
)
from memo_tta.report.pairing import Setting, settings
from memo_tta.report.plots import changes_plot, number_of_views_plot, reliability_plot
from memo_tta.report.run import Run
from memo_tta.report.view_panel import Figure

NAMES_IN_TITLE = 3
TEMPLATES = Environment(
    loader=PackageLoader("memo_tta.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class InlinePicture:
    """An image as a data URL, and its caption."""

    url: str
    caption: str


@dataclass(frozen=True)
class BlockSection:
    """What a page shows about one block of a run; what is empty is left out."""

    heading: str
    paper: Table | None
    heat_maps: Sequence[Table]
    changes: str  # data URL, as calibration
    calibration: str
    classes: Table
    examples: Sequence[InlinePicture]
    shown_method: str  # the method that the examples are about
    is_averaged: bool  # whether that method leaves the model as it is


@dataclass(frozen=True)
class SettingSection:
    """What a page shows about one data set, its shifted and its clean images together."""

    heading: str
    conclusion: Conclusion
    error_and_time: str  # data URL


@dataclass(frozen=True)
class RunSection:
    """What a page shows about one run."""

    blocks: Sequence[BlockSection]
    problem: str  # why there are no examples
    command: str
    facts: Sequence[tuple[str, str]]


def run_page(runs: Sequence[Run]) -> str:
    """Return the report of one or more runs as a page."""
    tables = [(run, table) for run in runs for table in run.tables]
    found = settings(runs)
    conclusions = [conclude(setting) for setting in found]
    best = {
        id(table[0]): conclusion.best
        for setting, conclusion in zip(found, conclusions, strict=True)
        for table in (setting.shifted, setting.clean)
        if table is not None
    }
    plot = number_of_views_plot(runs)
    return TEMPLATES.get_template("run.html").render(
        title=_title(found, len(runs)),
        settings=[
            SettingSection(setting.heading(len(runs)), conclusion, _error_and_time(setting))
            for setting, conclusion in zip(found, conclusions, strict=True)
        ],
        notes=[note for run in runs for note in _notes(run, len(runs))],
        has_parts=any(len(block.parts) > 1 for _, (block, _) in tables),
        has_shifted=any(setting.shifted for setting in found),
        gain_and_harm=gain_and_harm_table(found, len(runs)),
        results=results_table(runs),
        error_over_views=data_url("svg+xml", plot) if plot else "",
        sections=[_run_section(run, len(runs), best, with_heading=len(tables) > 1) for run in runs],
    )


def summary_page(
    title: str,
    introduction: str,
    suggestion: str,
    tables: Sequence[ResultTable],
    figures: Sequence[Figure],
    made_by: str,
) -> str:
    """Return a short page: one table of all data sets and methods, and pictures of single images."""
    return TEMPLATES.get_template("summary.html").render(
        title=title,
        introduction=introduction,
        suggestion=suggestion,
        results=summary_table(tables),
        pictures=[_inline_picture(figure) for figure in figures],
        made_by=made_by,
    )


def _title(found: Sequence[Setting], runs: int) -> str:
    names = list(dict.fromkeys(setting.heading(1) for setting in found))
    title = ", ".join(names) if len(names) <= NAMES_IN_TITLE else f"{len(names)} comparisons"
    return title if runs == 1 else f"{title}: {runs} runs"


def _notes(run: Run, runs: int) -> list[str]:
    return [f"{run.folder}: {note}" if runs > 1 else f"{note[:1].upper()}{note[1:]}." for note in run.notes]


def _error_and_time(setting: Setting) -> str:
    """Return the plot of all methods of a data set as a data URL."""
    kinds = [
        {} if table is None else {row.method: row for row in table[1]}
        for table in (setting.shifted, setting.clean)
    ]
    methods = dict.fromkeys(method for rows in kinds for method in rows)
    costs = [
        PlottedMethod(
            method,
            max(rows[method].seconds for rows in kinds if method in rows),
            *(_error_rate(rows.get(method)) for rows in reversed(kinds)),
        )
        for method in methods
    ]
    titles = LABELS if setting.shifted else (LABELS[0], setting.data)
    return data_url("svg+xml", error_and_time_plot(costs, titles))


def _error_rate(row: MethodResult | None) -> ErrorRate | None:
    return None if row is None else ErrorRate(row.error, row.low, row.high)


def _run_section(run: Run, runs: int, best: Mapping[int, str], with_heading: bool) -> RunSection:
    """Return the details of a run, with pictures of the best method, given by the `id` of its block."""
    shown = [shown_method(block, best[id(block)]) for block in run.blocks]
    found = examples(run, shown)
    blocks = [
        _block_section(run, table, figures, method or "", run.heading(table[0], runs) if with_heading else "")
        for table, figures, method in zip(run.tables, found.figures, shown, strict=True)
    ]
    return RunSection(blocks, found.problem, run.command, _facts(run))


def _block_section(
    run: Run, table: ResultTable, figures: Sequence[Figure], shown: str, heading: str
) -> BlockSection:
    block, rows = table
    return BlockSection(
        heading,
        paper_table(run, block, rows),
        heat_maps(block) if len(block.parts) > 1 else [],
        _changes(rows),
        _calibration(block),
        class_table(block, run.class_names(block)),
        [_inline_picture(figure) for figure in figures],
        shown,
        only_averages(shown),
    )


def _changes(rows: Sequence[MethodResult]) -> str:
    counts = {row.method: (row.to_source.helped, row.to_source.hurt) for row in rows if row.to_source}
    return data_url("svg+xml", changes_plot(counts)) if counts else ""


def _calibration(block: ResultBlock) -> str:
    plot = reliability_plot({method: calibration(block, method) for method in block.methods})
    return data_url("svg+xml", plot)


def _facts(run: Run) -> list[tuple[str, str]]:
    """Return what is known about the circumstances of a run, by name."""
    metadata = run.metadata
    found = {
        "run": str(run.folder),
        "records": f"{run.stored}",
        "started": metadata.get("began"),
        "weights": metadata.get("fingerprint") and f"fingerprint {metadata['fingerprint']}",
        "parameters": metadata.get("parameters") and f"{metadata['parameters']:,}",
        "versions": ", ".join(f"{name} {version}" for name, version in metadata.get("versions", {}).items()),
        "host": ", ".join(
            f"{value} {name}" if name == "cores" else str(value)
            for name, value in metadata.get("host", {}).items()
        ),
    }
    return [(name, str(text)) for name, text in found.items() if text]


def _inline_picture(figure: Figure) -> InlinePicture:
    file = io.BytesIO()
    figure.picture.save(file, "PNG", optimize=True)
    return InlinePicture(data_url("png", file.getvalue()), figure.caption)


def data_url(kind: str, content: bytes) -> str:
    """Return a picture as an address that holds it."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
