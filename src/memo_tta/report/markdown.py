"""A run as Markdown: its command and its tables, with the paper's figures in brackets."""

from collections.abc import Iterator, Sequence

from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.evaluation.comparison import MethodResult
from memo_tta.evaluation.results import ResultBlock
from memo_tta.report import formatting
from memo_tta.report.conclusion import suggestion_lines
from memo_tta.report.pairing import settings
from memo_tta.report.paper_comparison import PaperComparison, compare_with_paper, paper_figure
from memo_tta.report.run import Run

LEGEND = "The paper's figure stands in brackets: ✓ within the 95 % interval of ours, ✗ outside."
MARKS = {True: " ✓", False: " ✗", None: ""}


def report_markdown(runs: Sequence[Run]) -> str:
    """Return all tables of all runs, then what they suggest, with the suggestion last."""
    lines = suggestion_lines(settings(runs), len(runs))
    return "\n".join([*map(run_markdown, runs), "\n\n".join(["## What this suggests", *lines]) + "\n"])


def run_markdown(run: Run, command: str | None = None, with_seconds: bool = True) -> str:
    """Return all tables of a run; `command` is shown instead of the run's own."""
    command = command or run.command
    paragraphs = [f"```sh\n{command}\n```", *(note.replace(run.command, command) for note in run.notes)]
    for block, rows in run.tables:
        comparisons = compare_with_paper(run, block, rows)
        paragraphs.append(f"**{run.name(block)}**: {formatting.extent(block)}.")
        paragraphs.append("\n".join(_method_table(rows, comparisons, with_seconds)))
        paragraphs += [LEGEND] if comparisons else []
        if len(block.parts) > 1:
            paragraphs.append("\n".join(_corruption_tables(run, block)))
    return "\n\n".join(paragraphs) + "\n"


def table_row(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _method_table(
    rows: Sequence[MethodResult], comparisons: Sequence[PaperComparison], with_seconds: bool
) -> Iterator[str]:
    by_method = {comparison.row.method: comparison for comparison in comparisons}
    heads = ["method", "error %", "95 %", "to source", "95 %", "helped / hurt", *["s/image"] * with_seconds]
    yield table_row(heads)
    yield "|---" * len(heads) + "|"
    for row in rows:
        comparison, change = by_method.get(row.method), row.to_source
        error = formatting.percent(row.error)
        difference = "" if change is None else formatting.percentage_points(change.difference)
        if comparison is not None:
            error += _bracket(f"{comparison.paper:.1f}", comparison.agrees)
            if comparison.paper_change is not None:
                paper_change = formatting.percentage_points(comparison.paper_change / 100)
                difference += _bracket(paper_change, comparison.change_agrees)
        cells = [row.method, error, formatting.interval(row.low, row.high), difference]
        cells += (
            ["", ""]
            if change is None
            else [formatting.change_interval(change), f"{change.helped} / {change.hurt}"]
        )
        yield table_row([*cells, *[formatting.seconds(row.seconds)] * with_seconds])


def _corruption_tables(run: Run, block: ResultBlock) -> Iterator[str]:
    """Yield the lines of one table per level: error % of each method under each corruption."""
    for level in sorted({shift.severity for shift in block.parts}):
        yield table_row([f"level {level}", *block.methods])
        yield table_row(["---"] * (1 + len(block.methods)))
        for shift in block.parts:
            if shift.severity == level:
                cells = [_part_error(run, block, shift, method) for method in block.methods]
                yield table_row([shift.corruption.replace("_", " "), *cells])
        yield ""


def _part_error(run: Run, block: ResultBlock, shift: CorruptionLevel, method: str) -> str:
    results = block.parts[shift].get(method)
    if results is None:
        return ""
    paper = paper_figure(run, block, {shift}, method)
    return formatting.percent(results.error) + ("" if paper is None else _bracket(f"{paper:.1f}", None))


def _bracket(figure: str, agrees: bool | None) -> str:
    return f" ({figure}{MARKS[agrees]})"
