"""Self-contained HTML pages: plain values for the templates, which load nothing from the network."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from memo_tta.evaluation.comparison import MethodResult, ResultTable
from memo_tta.evaluation.metrics import calibration
from memo_tta.evaluation.results import ResultBlock
from memo_tta.report import formatting
from memo_tta.report.examples import examples
from memo_tta.report.html_tables import (
    Table,
    class_table,
    heat_maps,
    paper_table,
    results_table,
    summary_table,
)
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
    finding: str
    paper: Table | None
    heat_maps: Sequence[Table]
    changes: str  # data URL, as calibration
    calibration: str
    classes: Table
    hardest_for: str  # the method whose hardest classes are shown; "" if all classes are
    examples: Sequence[InlinePicture]


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
    is_single = len(tables) == 1
    plot = number_of_views_plot(runs)
    return TEMPLATES.get_template("run.html").render(
        title=_title(runs),
        lead=_finding(*tables[0]) if is_single else "",
        notes=[note for run in runs for note in _notes(run, len(runs))],
        has_parts=any(len(block.parts) > 1 for _, (block, _) in tables),
        results=results_table(runs),
        error_over_time=_data_url("svg+xml", plot) if plot else "",
        sections=[_run_section(run, len(runs), with_heading=not is_single) for run in runs],
    )


def summary_page(
    title: str, introduction: str, tables: Sequence[ResultTable], figures: Sequence[Figure], made_by: str
) -> str:
    """Return a short page: one table of all data sets and methods, and pictures of single images."""
    return TEMPLATES.get_template("summary.html").render(
        title=title,
        introduction=introduction,
        results=summary_table(tables),
        pictures=[_inline_picture(figure) for figure in figures],
        made_by=made_by,
    )


def _title(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(run.name(block) for run in runs for block in run.blocks))
    title = ", ".join(names) if len(names) <= NAMES_IN_TITLE else f"{len(names)} comparisons"
    return title if len(runs) == 1 else f"{title}: {len(runs)} runs"


def _notes(run: Run, runs: int) -> list[str]:
    return [f"{run.folder}: {note}" if runs > 1 else f"{note[:1].upper()}{note[1:]}." for note in run.notes]


def _finding(run: Run, table: ResultTable) -> str:
    """Return the main result as a sentence; empty without memo and source."""
    block, rows = table
    by_method = {row.method: row for row in rows}
    memo, source = by_method.get("memo"), by_method.get("source")
    if memo is None or source is None or memo.to_source is None:
        return ""
    change = memo.to_source
    difference = formatting.minus_sign(formatting.percentage_points(change.difference))
    interval = formatting.minus_sign(formatting.change_interval(change))
    return (
        f"memo changes the error of {run.model} on {block.dataset} from {formatting.percent(source.error)} % "
        f"to {formatting.percent(memo.error)} %, by {difference} percentage points ({interval}). "
        f"Of {change.points} predictions, it corrects {change.helped} and makes {change.hurt} wrong."
    )


def _run_section(run: Run, runs: int, with_heading: bool) -> RunSection:
    found = examples(run)
    blocks = [
        _block_section(run, table, figures, run.heading(table[0], runs) if with_heading else "")
        for table, figures in zip(run.tables, found.figures, strict=True)
    ]
    return RunSection(blocks, found.problem, run.command, _facts(run))


def _block_section(run: Run, table: ResultTable, figures: Sequence[Figure], heading: str) -> BlockSection:
    block, rows = table
    classes, has_all_classes = class_table(block, run.class_names(block))
    return BlockSection(
        heading,
        _finding(run, table) if heading else "",
        paper_table(run, block, rows),
        heat_maps(block) if len(block.parts) > 1 else [],
        _changes(rows),
        _calibration(block),
        classes,
        "" if has_all_classes else block.methods[0],
        [_inline_picture(figure) for figure in figures],
    )


def _changes(rows: Sequence[MethodResult]) -> str:
    counts = {row.method: (row.to_source.helped, row.to_source.hurt) for row in rows if row.to_source}
    return _data_url("svg+xml", changes_plot(counts)) if counts else ""


def _calibration(block: ResultBlock) -> str:
    plot = reliability_plot({method: calibration(block, method) for method in block.methods})
    return _data_url("svg+xml", plot)


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
    return InlinePicture(_data_url("png", file.getvalue()), figure.caption)


def _data_url(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
