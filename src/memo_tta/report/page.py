"""A run as one self-contained page: readable on screen and on paper, nothing fetched from anywhere."""

import base64
import io
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from memo_tta.evaluation.analysis import MethodResult, ResultBlock, calibration
from memo_tta.report import formatting
from memo_tta.report.effort import effort_over_views
from memo_tta.report.examples import examples
from memo_tta.report.html import Figure
from memo_tta.report.page_tables import (
    ALL_CLASSES,
    WORST_CLASSES,
    class_table,
    heat_maps,
    main_table,
    paper_table,
)
from memo_tta.report.plots import changes_plot, reliability_plot
from memo_tta.report.run import Run

NAMES_IN_TITLE = 3


def run_page(runs: Sequence[Run]) -> str:
    template = files("memo_tta").joinpath("report/templates/run.html").read_text("utf-8")
    comparisons = [(run, block, table) for run in runs for block, table in run.tables]
    alone = len(comparisons) == 1
    return Template(template).substitute(
        title=escape(_title(runs)),
        lead=_finding(*comparisons[0], "lead") if alone else "",
        notes="\n".join(f'<p class="note">{escape(n)}</p>' for run in runs for n in _notes(run, len(runs))),
        averages=", averaged over the parts of the data (each weighs the same)" if _has_parts(runs) else "",
        table=main_table(runs),
        effort=_effort(runs),
        sections="\n".join(_sections(run, len(runs), headed=not alone) for run in runs),
        reproduce=_reproduce(runs),
    )


def _title(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(run.name(block) for run in runs for block in run.blocks))
    title = ", ".join(names) if len(names) <= NAMES_IN_TITLE else f"{len(names)} comparisons"
    return title if len(runs) == 1 else f"{title}: {len(runs)} runs"


def _has_parts(runs: Sequence[Run]) -> bool:
    return any(len(block.parts) > 1 for run in runs for block in run.blocks)


def _notes(run: Run, runs: int) -> list[str]:
    return [f"{run.folder}: {note}" if runs > 1 else f"{note[:1].upper()}{note[1:]}." for note in run.notes]


def _finding(run: Run, block: ResultBlock, table: Sequence[MethodResult], kind: str = "") -> str:
    """The main result as a sentence."""
    by_method = {row.method: row for row in table}
    memo, source = by_method.get("memo"), by_method.get("source")
    if memo is None or source is None or memo.to_source is None:
        return ""
    change = memo.to_source
    difference, span = formatting.points(change.difference), formatting.change_span(change)
    text = (
        f"memo takes the error of {run.model} on {block.dataset} from {formatting.percent(source.error)} % "
        f"to {formatting.percent(memo.error)} %, a difference of {formatting.minus(difference)} points "
        f"({formatting.minus(span)}). Of {change.points} answers it sets {change.helped} right and makes "
        f"{change.hurt} wrong."
    )
    return f'<p class="{kind}">{escape(text)}</p>'


def _sections(run: Run, runs: int, headed: bool) -> str:
    """All that there is to say of each block."""
    pictures = examples(run)
    parts = []
    for (block, table), panels in zip(run.tables, pictures.figures, strict=True):
        if headed:
            parts += [f"<h2>{escape(run.heading(block, runs))}</h2>", _finding(run, block, table)]
        parts += [_beside_the_paper(run, block, table), _by_corruption(block), _changes(table)]
        parts += [_calibration(block), _classes(run, block), _panels(panels)]
    parts.append(f'<p class="quiet">{escape(pictures.excuse)}</p>' if pictures.excuse else "")
    return "\n".join(part for part in parts if part)


def _section(title: str, about: str, content: str) -> str:
    return f'<section><h3>{title}</h3>\n<p>{about}</p>\n<div class="card">{content}</div></section>'


def _beside_the_paper(run: Run, block: ResultBlock, table: Sequence[MethodResult]) -> str:
    content = paper_table(run, block, table)
    about = (
        "The paper’s figures for this model, averaged over the same parts. Its weights and images may differ."
    )
    return content and _section("Beside the paper", about, content)


def _by_corruption(block: ResultBlock) -> str:
    if len(block.parts) < 2:
        return ""
    about = "Darker blue is a larger error; green cells got better, red ones worse, in percentage points."
    return _section("By corruption and level", about, heat_maps(block))


def _changes(table: Sequence[MethodResult]) -> str:
    counts = {row.method: (row.to_source.helped, row.to_source.hurt) for row in table if row.to_source}
    if not counts:
        return ""
    about = "How many points each method sets right, and how many it makes wrong, against source."
    return _section("Helped and hurt", about, _plot(changes_plot(counts), about))


def _calibration(block: ResultBlock) -> str:
    about = (
        "Bars are the accuracy of the points whose confidence is in that range; pale red is accuracy that "
        "confidence claims in vain, pale blue what it does not claim. On the dashed line a score means what "
        "it says; ECE is the expected calibration error."
    )
    plot = reliability_plot({method: calibration(block, method) for method in block.methods})
    return _section("Calibration", about, _plot(plot, "Reliability diagrams"))


def _classes(run: Run, block: ResultBlock) -> str:
    names = run.class_names(block)
    many = (
        f"The {WORST_CLASSES} classes with the largest error of {escape(block.methods[0])}: error in percent."
    )
    about = many if len(names) > ALL_CLASSES else "Error in percent, over all points of the class."
    return _section("By class", about, class_table(block, names))


def _panels(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    about = (
        "The points that memo helped and hurt most, as far as scores tell. The image comes first, then some "
        "of its views; green answers are right, red ones wrong. The upper row is the model as it came, the "
        "lower row after it adapted to this image alone."
    )
    pictures = "\n".join(
        f'<figure><img class="panel" src="{_png(figure)}" alt="{escape(figure.caption)}">'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
        for figure in figures
    )
    return f"<section><h3>What happened to single points</h3>\n<p>{about}</p>\n{pictures}</section>"


def _effort(runs: Sequence[Run]) -> str:
    plot = effort_over_views(runs)
    about = "Each point is a run with so many views: more views cost more time. Down and left is better."
    return _section("Error against time", about, _plot(plot, about)) if plot else ""


def _reproduce(runs: Sequence[Run]) -> str:
    parts = ["<section><h2>How to get these figures again</h2>"]
    for run in runs:
        terms = "".join(
            f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in _circumstances(run)
        )
        parts.append(f'<div class="card"><pre>{escape(run.command)}</pre><dl>{terms}</dl></div>')
    return "\n".join([*parts, "</section>"])


def _circumstances(run: Run) -> list[tuple[str, str]]:
    facts = run.facts
    found = {
        "run": str(run.folder),
        "records": f"{run.stored}",
        "begun": facts.get("began"),
        "weights": facts.get("fingerprint") and f"fingerprint {facts['fingerprint']}",
        "parameters": facts.get("parameters") and f"{facts['parameters']:,}",
        "versions": ", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items()),
        "host": ", ".join(
            f"{value} {name}" if name == "cores" else str(value)
            for name, value in facts.get("host", {}).items()
        ),
    }
    return [(term, str(text)) for term, text in found.items() if text]


def _plot(svg: bytes, about: str) -> str:
    return f'<figure><img src="{_data("svg+xml", svg)}" alt="{escape(about)}"></figure>'


def _png(figure: Figure) -> str:
    file = io.BytesIO()
    figure.picture.save(file, "PNG", optimize=True)
    return _data("png", file.getvalue())


def _data(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
