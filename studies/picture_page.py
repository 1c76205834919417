"""Fill docs/pictures.md and its CSV from runs: python -m studies.picture_page --help.

Sections whose results are neither among the runs nor in the CSV stay as they are.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import click

from memo_tta.evaluation.comparison import compare, differences, mean_error
from memo_tta.evaluation.results import ResultBlock
from memo_tta.report import formatting
from memo_tta.report.markdown import table_row
from studies.page_markers import fill_page
from studies.picture_runs import NETWORKS, TRIALS, steps
from studies.reproduction_page import AUTHORS, OUT, PICTURES, open_started
from studies.result_files import blocks, read_csv, update_csv

FORWARD = ("tta", "bn1", "restore")


class Page:
    """The sections of the page."""

    def __init__(self, found: Mapping[str, ResultBlock], commands: Mapping[str, str], out: Path):
        self._found, self._commands, self._out = found, commands, out

    def output(self, name: str) -> str | None:
        """Return what another study printed."""
        path = self._out / name
        return path.read_text("utf-8") if path.exists() else None

    def forward(self, run: str) -> str | None:
        """Return what the methods without a gradient change, by network."""
        return self._by_network([(method, run, method) for method in FORWARD])

    def memo(self, images: str) -> str | None:
        """Return what MEMO changes with its defaults and with the paper's settings, by network."""
        return self._by_network(
            [
                ("restore", f"memo-{images}", "restore"),
                ("memo", f"memo-{images}", "memo"),
                ("memo, the paper's settings", f"paper-{images}", "memo"),
            ]
        )

    def trials(self, images: str) -> str | None:
        """Return what MEMO changes without a gate, by kind of views and prior strength."""
        return self._by_network([(name, f"{name}-{images}", "memo") for name in TRIALS])

    def corruptions(self, run: str) -> str | None:
        """Return errors of the source and what `restore` changes, by corruption, over both levels."""
        found = [self._found.get(f"224/{network}/{run}") for network in NETWORKS]
        if None in found:
            return None
        known = [block for block in found if block is not None]
        lines = [table_row(["", *NETWORKS, "mean"]), "|---" * (2 + len(NETWORKS)) + "|"]
        for corruption in dict.fromkeys(shift.corruption for shift in known[0].parts):
            parts = [_of_corruption(block, corruption) for block in known]
            changes = [fmean(differences(part, "restore", "source").values()) for part in parts]
            cells = [
                f"{formatting.percent(mean_error(part, 'source')[0])} {formatting.percentage_points(change)}"
                for part, change in zip(parts, changes, strict=True)
            ]
            name = corruption.replace("_", " ")
            lines.append(table_row([name, *cells, formatting.percentage_points(fmean(changes))]))
        return "\n".join(lines)

    def _by_network(self, rows: Sequence[tuple[str, str, str]]) -> str | None:
        """Return a table of (title, run, method): the source's error, and changes to it with intervals."""
        runs = list(dict.fromkeys(run for _, run, _ in rows))
        if any(f"224/{network}/{run}" not in self._found for network in NETWORKS for run in runs):
            return None
        lines = ["```sh", *(self._commands[f"224/{network}/{run}"] for network in NETWORKS for run in runs)]
        lines += ["```", "", table_row(["", *NETWORKS, "mean"]), "|---" * (2 + len(NETWORKS)) + "|"]
        errors = [mean_error(block, "source")[0] for block in self._of(runs[0])]
        cells = map(formatting.percent, [*errors, fmean(errors)])
        lines.append(table_row(["source, error %", *cells]))
        for title, run, method in rows:
            changes = [change for block in self._of(run) if (change := compare(block, method, "source"))]
            cells = [
                f"{formatting.percentage_points(change.difference)} ({formatting.change_interval(change)})"
                for change in changes
            ]
            mean = formatting.percentage_points(fmean(change.difference for change in changes))
            lines.append(table_row([title, *cells, mean]))
        return "\n".join(lines)

    def _of(self, run: str) -> Iterator[ResultBlock]:
        return (self._found[f"224/{network}/{run}"] for network in NETWORKS)


def _of_corruption(block: ResultBlock, corruption: str) -> ResultBlock:
    parts = {shift: part for shift, part in block.parts.items() if shift.corruption == corruption}
    return ResultBlock(block.dataset, parts)


@click.command(help=__doc__)
@click.argument("out", type=click.Path(exists=True, path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
def main(out: Path, docs: Path) -> None:
    shown = list(steps(OUT, AUTHORS, PICTURES))
    commands = {step.name: shlex.join(step.command(OUT)) for step in shown}
    runs = {name: run for name, run in open_started(out, shown) if not run.missing}
    update_csv(docs / "pictures.csv", list(commands), runs)
    page = Page(blocks(read_csv(docs / "pictures.csv")), commands, out)
    writers = {name: getattr(page, name) for name in ("output", "forward", "memo", "trials", "corruptions")}
    fill_page(docs / "pictures.md", writers)


if __name__ == "__main__":
    main()
