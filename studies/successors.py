"""MEMO's successors over streams in several orders, and on clean images: python -m studies.successors --help.

Each run is a `memo evaluate` in OUT; a second start resumes. Then docs/successors.csv gets the runs that are
done, and the tables of docs/successors.md are written from it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from memo_tta.evaluation.results import ResultBlock
from memo_tta.report.markdown import table_row
from studies.page_markers import fill_page
from studies.reproduction_runs import Step
from studies.result_files import blocks, joined, read_csv, update_csv
from studies.streams import ORDERS, Cell, change, commands, error, finished, run

OUT = Path("runs/successors")  # shown in commands instead of this machine's path
SINGLE = ("source", "restore", "memo", "zero")  # predict the same in any order
STREAM = ("recenter", "t3a", "lame", "bn", "tent", "eta", "sar", "deyo", "cotta")
CLEAN, SHIFTED = "clean", "shifted"
COLUMNS = {  # of the tables: the runs of SINGLE and of STREAM
    CLEAN: (CLEAN, "clean-stream"),
    **{order: (SHIFTED, order) for order in ORDERS},
}


def steps(limit: int = 200) -> Iterator[Step]:
    """Yield all evaluations, on so many images of each part, the quickest first."""
    model = ("evaluate", "cifar10", "--model", "resnet20-bn", "--limit", str(limit))
    single, stream = (("--methods", ",".join(methods)) for methods in (SINGLE, STREAM))
    yield Step(CLEAN, (*model, *single))
    yield Step("clean-stream", (*model, *stream))
    for order in ORDERS:
        yield Step(order, (*model, "--severities", "5", *stream, "--order", order))
    yield Step(SHIFTED, (*model, "--severities", "5", *single))


def table(cell: Cell, found: Mapping[str, ResultBlock]) -> str | None:
    """Return a row for each method, and a column for clean images and for each order whose runs are there."""
    columns = {name: joined(found, *runs) for name, runs in COLUMNS.items()}
    done = {name: block for name, block in columns.items() if block is not None}
    if not done:
        return None
    rows = [[f"`{name}`", *(cell(block, name) for block in done.values())] for name in (*SINGLE, *STREAM)]
    lines = [table_row(["", *done]), "|---" * (1 + len(done)) + "|", *map(table_row, rows)]
    return "\n".join(lines) + "\n"


@click.command(help=__doc__)
@click.argument("out", default=OUT, type=click.Path(path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
@click.option("--limit", default=200, show_default=True, help="Images of each corruption.")
@click.option("--workers", default="1", show_default=True, help="As of `memo evaluate`.")
@click.option(
    "--page-only", is_flag=True, help="Run nothing; write CSV and page from the runs that are there."
)
def main(out: Path, docs: Path, limit: int, workers: str, page_only: bool) -> None:
    run(() if page_only else steps(limit), out, workers)
    names = [step.name for step in steps(limit)]
    update_csv(docs / "successors.csv", names, dict(finished(steps(limit), out)))
    found = blocks(read_csv(docs / "successors.csv"))
    writers = {
        "errors": lambda _: table(error, found),
        "changes": lambda _: table(change, found),
        "commands": lambda _: commands(steps(limit), OUT),
    }
    fill_page(docs / "successors.md", writers)


if __name__ == "__main__":
    main()
