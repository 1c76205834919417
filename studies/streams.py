"""Methods that learn on, over streams in several orders: python -m studies.streams --help.

Each run is a `memo evaluate` in OUT; a second start resumes. Then docs/streams.csv gets the runs that are
done, and the tables of docs/streams.md are written from it.
"""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import click

from memo_tta.errors import DataError
from memo_tta.evaluation.comparison import compare, mean_error
from memo_tta.evaluation.results import ResultBlock
from memo_tta.report import formatting
from memo_tta.report.markdown import table_row
from memo_tta.report.run import Run, open_run
from studies.page_markers import fill_page
from studies.reproduction_runs import Step
from studies.result_files import blocks, joined, read_csv, update_csv

OUT = Path("runs/streams")  # shown in commands instead of this machine's path
ORDERS = ("iid", "sorted", "mixed", "gradual")
DATA = ("--corruptions", "gaussian_noise,fog", "--severities", "1,3,5", "--limit", "400")
VIEWS = ("--option", "memo.n_views=8")
REFERENCE, EPISODIC = "reference", "episodic"  # methods that predict the same in any order
ROWS = {  # of the tables: the run, which may depend on the order, and the method
    "source": (REFERENCE, "source"),
    "restore": (REFERENCE, "restore"),
    "memo, reset after every image": (EPISODIC, "memo"),
    "memo, anchored": ("{order}", "memo"),
    "memo, never reset": ("{order}-never", "memo"),
    "bn, 256 images": ("{order}", "bn"),
    "tent-episodic, 64 images": ("{order}", "tent-episodic"),
    "tent, 64 images": ("{order}", "tent"),
}

Cell = Callable[[ResultBlock, str], str]  # from a block with the source's results, and a method


def steps() -> Iterator[Step]:
    """Yield all evaluations, the most important first."""
    model = ("evaluate", "cifar10", "--model", "resnet20-bn", *DATA)
    yield Step(REFERENCE, (*model, "--methods", "source,restore"))
    for order in ORDERS:
        methods = ("--methods", "bn,tent,tent-episodic,memo", *VIEWS, "--option", "memo.reset=anchor")
        yield Step(order, (*model, *methods, "--order", order))
    for order in ORDERS:
        methods = ("--methods", "memo", *VIEWS, "--option", "memo.reset=never")
        yield Step(f"{order}-never", (*model, *methods, "--order", order))
    yield Step(EPISODIC, (*model, "--methods", "memo", *VIEWS))


def error(block: ResultBlock, method: str) -> str:
    """Return the error in percent with its 95 % interval."""
    mean, low, high = mean_error(block, method)
    return f"{formatting.percent(mean)} ({formatting.interval(low, high)})"


def change(block: ResultBlock, method: str) -> str:
    """Return the change to the source in points with its 95 % interval; empty for the source itself."""
    if method == "source" or (found := compare(block, method, "source")) is None:
        return ""
    return f"{formatting.percentage_points(found.difference)} ({formatting.change_interval(found)})"


def table(cell: Cell, found: Mapping[str, ResultBlock]) -> str | None:
    """Return a row for each method whose runs are there, and a column for each order."""
    lines = [table_row(["", *ORDERS]), "|---" * (1 + len(ORDERS)) + "|"]
    for name, (run, method) in ROWS.items():
        columns = [joined(found, REFERENCE, run.format(order=order)) for order in ORDERS]
        if all(columns):
            lines.append(table_row([name, *(cell(block, method) for block in columns if block)]))
    return "\n".join(lines) + "\n" if len(lines) > 2 else None


def commands(steps: Iterable[Step], out: Path) -> str:
    """Return the command lines of all runs."""
    return "\n".join(["```sh", *(shlex.join(step.command(out)) for step in steps), "```", ""])


def run(steps: Iterable[Step], out: Path, workers: str) -> None:
    """Run the steps one after the other; end with the exit code of the first that fails."""
    for step in steps:
        words = [*step.command(out)[1:], "--workers", workers]
        click.echo(shlex.join(["memo", *words]))
        if code := subprocess.run([sys.executable, "-m", "memo_tta", *words]).returncode:
            raise click.exceptions.Exit(code)


def finished(steps: Iterable[Step], out: Path) -> Iterator[tuple[str, Run]]:
    """Yield the name and run of each step that has records."""
    for step in steps:
        with suppress(DataError):
            yield step.name, open_run(out / step.name)


@click.command(help=__doc__)
@click.argument("out", default=OUT, type=click.Path(path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
@click.option("--workers", default="1", show_default=True, help="As of `memo evaluate`.")
@click.option(
    "--page-only", is_flag=True, help="Run nothing; write CSV and page from the runs that are there."
)
def main(out: Path, docs: Path, workers: str, page_only: bool) -> None:
    run(() if page_only else steps(), out, workers)
    update_csv(docs / "streams.csv", [step.name for step in steps()], dict(finished(steps(), out)))
    found = blocks(read_csv(docs / "streams.csv"))
    writers = {
        "errors": lambda _: table(error, found),
        "changes": lambda _: table(change, found),
        "commands": lambda _: commands(steps(), OUT),
    }
    fill_page(docs / "streams.md", writers)


if __name__ == "__main__":
    main()
