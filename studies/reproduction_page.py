"""Fill docs/reproduction.md, its CSV and its plot from runs: python -m studies.reproduction_page --help.

The section `<!-- run NAME -->` of the page, up to `<!-- end -->`, shows that run; `<!-- views NAME -->` shows
error and time over the number of views, from the runs NAME/b1, NAME/b2 and so on; `<!-- networks NAME -->`
compares the bundled networks on clean or corrupted images, from the CSV files. Sections and CSV rows of
missing runs stay as they are.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

from memo_tta.errors import DataError
from memo_tta.evaluation.comparison import compare, mean_error
from memo_tta.evaluation.results import ResultBlock
from memo_tta.files import atomic_file
from memo_tta.methods import METHODS
from memo_tta.report import formatting
from memo_tta.report.markdown import run_markdown, table_row
from memo_tta.report.plots import number_of_views_plot
from memo_tta.report.run import Run, open_run
from studies.page_markers import fill_page
from studies.reproduction_runs import BATCHES, NORMS, Step, steps
from studies.result_files import blocks, joined, read_csv, update_csv

# Shown in commands instead of this machine's paths.
OUT, AUTHORS = Path("runs"), Path("resnet26_gn.npz")


# The three bundled networks: runs on the same images are in one group.
NETWORKS = {
    "resnet26, group norm": {
        "clean": [("shipped/cifar10", "shipped/restore"), ("shipped/tent",)],
        "corrupted": [("shipped/cifar10-c", "shipped/restore-c"), ("shipped/tent-c",)],
    },
    "resnet20-bn, batch norm": {
        "clean": [("resnet20-bn/cifar10",)],
        "corrupted": [("resnet20-bn/cifar10-c",)],
    },
    "cct2, layer norm": {"clean": [("cct2/cifar10",)], "corrupted": [("cct2/cifar10-c",)]},
}


def one_run(name: str, runs: Mapping[str, Run], commands: Mapping[str, str]) -> str | None:
    """Return a run as Markdown; with times only where all methods shared the machine with the same work."""
    with_seconds = name.partition("/")[0] in NORMS
    return run_markdown(runs[name], commands[name], with_seconds) if name in runs else None


def over_views(name: str, runs: Mapping[str, Run], commands: Mapping[str, str]) -> str | None:
    """Return a table of error and time over the number of views."""
    found = {batch: runs[run] for batch in BATCHES if (run := f"{name}/b{batch}") in runs}
    if not found:
        return None
    lines = ["```sh", *(commands[f"{name}/b{batch}"] for batch in BATCHES), "```", ""]
    lines += [
        "| B | tta error % | 95 % | memo error % | 95 % | tta s/point | memo s/point |",
        "|---" * 7 + "|",
    ]
    for batch, run in found.items():
        ((_, table),) = run.tables
        rows = [row for method in ("tta", "memo") for row in table if row.method == method]
        errors = [
            text
            for row in rows
            for text in (formatting.percent(row.error), formatting.interval(row.low, row.high))
        ]
        lines.append(table_row([str(batch), *errors, *(formatting.seconds(row.seconds) for row in rows)]))
    return "\n".join(lines) + "\n"


def by_network(images: str, blocks: Mapping[str, ResultBlock]) -> str | None:
    """Return the source's error and what each method changes on clean or corrupted images, by network."""
    columns: list[dict[str, str]] = []
    for groups in NETWORKS.values():
        found = [block for names in groups[images] if (block := joined(blocks, *names)) is not None]
        columns.append(dict(cell for block in reversed(found) for cell in _changes(block)))
    if not all(columns):
        return None
    lines = [table_row(["", *NETWORKS]), "|---" * (1 + len(NETWORKS)) + "|"]
    for method in METHODS:
        if any(method in cells for cells in columns):
            name = "source, error %" if method == "source" else method
            lines.append(table_row([name, *(cells.get(method, "") for cells in columns)]))
    return "\n".join(lines) + "\n"


def _changes(block: ResultBlock) -> Iterator[tuple[str, str]]:
    """Yield each method with its change to the source and the interval; the source with its error."""
    yield "source", formatting.percent(mean_error(block, "source")[0])
    for method in block.methods:
        if method != "source" and (change := compare(block, method, "source")) is not None:
            difference = formatting.percentage_points(change.difference)
            yield method, f"{difference} ({formatting.change_interval(change)})"


def open_started(out: Path, shown: Sequence[Step]) -> Iterator[tuple[str, Run]]:
    """Yield the name and run of each step that has records."""
    for step in shown:
        with suppress(DataError):
            yield step.name, open_run(out / step.name)


@click.command(help=__doc__)
@click.argument("out", type=click.Path(exists=True, path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
def main(out: Path, docs: Path) -> None:
    shown: list[Step] = list(steps(AUTHORS))
    commands = {step.name: shlex.join(step.command(OUT)) for step in shown}
    runs = dict(open_started(out, shown))
    update_csv(docs / "reproduction.csv", list(commands), runs)
    rows = [row for name in ("reproduction", "beyond") for row in read_csv(docs / f"{name}.csv")]
    results = blocks(rows)
    fill_page(
        docs / "reproduction.md",
        {
            "run": lambda name: one_run(name, runs, commands),
            "views": lambda name: over_views(name, runs, commands),
            "networks": lambda images: by_network(images, results),
        },
    )
    plot = number_of_views_plot([runs[name] for b in BATCHES if (name := f"authors/b{b}") in runs])
    if plot is not None:
        with atomic_file(docs / "effort.svg") as part:
            part.write_bytes(plot)


if __name__ == "__main__":
    main()
