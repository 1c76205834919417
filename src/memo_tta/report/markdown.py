"""A run as Markdown: its command, and its methods with the paper's figures beside them."""

from collections.abc import Iterator, Sequence

from memo_tta.evaluation.analysis import CorruptionLevel, MethodResult, ResultBlock
from memo_tta.report import formatting
from memo_tta.report.paper_comparison import PaperComparison, compare_with_paper, paper_figure
from memo_tta.report.run import Run

LEGEND = "The paper's figure stands in brackets: ✓ within the 95 % interval of ours, ✗ outside."
MARKS = {True: " ✓", False: " ✗", None: ""}


def run_markdown(run: Run, command: str | None = None, with_seconds: bool = True) -> str:
    """All blocks of a run; `command` is what to show for the one that made it."""
    command = command or run.command
    parts = [f"```sh\n{command}\n```", *(note.replace(run.command, command) for note in run.notes)]
    for block, rows in run.tables:
        paper = compare_with_paper(run, block, rows)
        table = "\n".join(_methods(rows, paper, with_seconds))
        parts += [f"**{run.name(block)}**: {formatting.extent(block)}.", table]
        parts += [LEGEND] if paper else []
        if len(block.parts) > 1:
            parts.append("\n".join(_shifts(run, block)))
    return "\n\n".join(parts) + "\n"


def _methods(
    rows: Sequence[MethodResult], paper: Sequence[PaperComparison], with_seconds: bool
) -> Iterator[str]:
    theirs = {beside.row.method: beside for beside in paper}
    heads = ["method", "error %", "95 %", "to source", "95 %", "helped / hurt", *["s/point"] * with_seconds]
    yield _line(heads)
    yield "|---" * len(heads) + "|"
    for row in rows:
        beside, change = theirs.get(row.method), row.to_source
        error = formatting.percent(row.error)
        difference = "" if change is None else formatting.points(change.difference)
        if beside is not None:
            error += _bracket(f"{beside.theirs:.1f}", beside.agrees)
            if beside.their_change is not None:
                difference += _bracket(formatting.points(beside.their_change / 100), beside.change_agrees)
        cells = [row.method, error, formatting.span(row.low, row.high), difference]
        cells += (
            ["", ""]
            if change is None
            else [formatting.change_span(change), f"{change.helped} / {change.hurt}"]
        )
        yield _line([*cells, *[formatting.seconds(row.seconds)] * with_seconds])


def _shifts(run: Run, block: ResultBlock) -> Iterator[str]:
    """Error % of every method, corruption by corruption and level by level."""
    levels = sorted({shift.severity for shift in block.parts})
    for level in levels:
        shifts = [shift for shift in block.parts if shift.severity == level]
        yield _line([f"level {level}", *block.methods])
        yield _line(["---"] * (1 + len(block.methods)))
        for shift in shifts:
            cells = [_part(run, block, shift, method) for method in block.methods]
            yield _line([shift.corruption.replace("_", " "), *cells])
        yield ""


def _part(run: Run, block: ResultBlock, shift: CorruptionLevel, method: str) -> str:
    answers = block.parts[shift].get(method)
    if answers is None:
        return ""
    theirs = paper_figure(run, block, {shift}, method)
    return formatting.percent(answers.error) + ("" if theirs is None else _bracket(f"{theirs:.1f}", None))


def _bracket(figure: str, agrees: bool | None) -> str:
    return f" ({figure}{MARKS[agrees]})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
