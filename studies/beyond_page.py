"""Fill docs/beyond.md from runs: python -m studies.beyond_page --help.

Results of runs go into docs/beyond.csv, or into docs/reproduction.csv if the reproduction has the same runs.
Tables come from both files, so the runs may have been on different machines. Sections whose results are in
neither stay as they are.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import click

from memo_tta.evaluation.comparison import compare, mean_error
from memo_tta.evaluation.results import ResultBlock
from memo_tta.evaluation.store import open_for_reading
from memo_tta.methods import METHODS as TABLE
from memo_tta.methods import Status
from memo_tta.report import formatting
from memo_tta.report.markdown import table_row
from memo_tta.report.run import Run
from studies import reproduction_runs, result_files
from studies.beyond_runs import steps
from studies.page_markers import fill_page
from studies.reproduction_page import AUTHORS, OUT, open_started

METHODS = ("source", "tta", "memo", "restore")

ErrorOf = Callable[[ResultBlock, str], float]  # the error of a method on a block


class Page:
    """The sections of the page. Errors come from the CSV files, times from the runs."""

    def __init__(
        self, rows: Sequence[Mapping[str, str]], runs: Mapping[str, Run], commands: Mapping[str, str]
    ):
        self._blocks, self._errors = result_files.blocks(rows), result_files.errors(rows)
        self._runs, self._commands = runs, commands

    def clean(self, name: str) -> str | None:
        """Return the results of a ResNet-26 on clean images."""
        block = self._joined(f"{name}/cifar10", f"{name}/restore") or self._joined(f"{name}/restore")
        if block is None:
            return None
        error_of = self._error_from_counts(f"{name}/cifar10")
        return self._shown(f"{name}/restore") + _table([("clean", block)], METHODS, METHODS[:-1], error_of)

    def levels(self, name: str) -> str | None:
        """Return the results of a ResNet-26, averaged over corruptions at each level."""
        block = self._joined(f"{name}/cifar10-c", f"{name}/restore-c")
        if block is None:
            return None
        rows = [(f"level {level}", _at_level(block, level)) for level in _levels(block)]
        rows.append(("all levels", block))
        return self._shown(f"{name}/restore-c") + _table(rows, METHODS, METHODS[:-1])

    def corruptions(self, name: str) -> str | None:
        """Return the results of a ResNet-26 under each corruption at the highest level."""
        block = self._joined(f"{name}/cifar10-c", f"{name}/restore-c")
        if block is None:
            return None
        block = _at_level(block, max(_levels(block)))
        rows = [
            (shift.corruption.replace("_", " "), ResultBlock(block.dataset, {shift: block.parts[shift]}))
            for shift in block.parts
        ]
        rows.append(("average", block))
        return _table(rows, METHODS, ["memo"])

    def time(self, name: str) -> str | None:
        """Return the mean seconds per point, restore's share of MEMO's, and its number of forward passes."""
        head = ["seconds", *METHODS, "restore / memo", "of it, views", "forward passes of restore"]
        lines = [table_row(head), table_row(["---"] * len(head))]
        for run, about in ((f"{name}/time", "clean"), (f"{name}/time-c", "level 5")):
            if run not in self._runs:
                return None
            (block,) = self._runs[run].blocks
            pooled = {method: block.pooled(method) for method in METHODS}
            seconds = {method: float(results.seconds.mean()) for method, results in pooled.items()}
            views = float(pooled["restore"].views_seconds.mean()) / seconds["restore"]
            cells = [f"{seconds[method]:.3f}" for method in METHODS]
            cells += [f"{seconds['restore'] / seconds['memo']:.2f}", f"{100 * views:.0f} %"]
            lines.append(table_row([about, *cells, f"{forward_passes(self._runs[run].folder):.1f}"]))
        return self._shown(f"{name}/time", f"{name}/time-c") + "\n".join(lines)

    def _shown(self, *names: str) -> str:
        """Return the commands of runs as a code block."""
        return "```sh\n" + "\n".join(self._commands[name] for name in names) + "\n```\n\n"

    def _error_from_counts(self, run: str) -> ErrorOf:
        """Return a function that takes errors that a block does not have from the counts of this run."""

        def error_of(block: ResultBlock, method: str) -> float:
            if method in block.methods:
                return _own_error(block, method)
            return fmean(self._errors[run, shift, method] for shift in block.parts)

        return error_of

    def _joined(self, *names: str) -> ResultBlock | None:
        return result_files.joined(self._blocks, *names)


def _at_level(block: ResultBlock, level: int) -> ResultBlock:
    return ResultBlock(
        block.dataset, {shift: part for shift, part in block.parts.items() if shift.severity == level}
    )


def _levels(block: ResultBlock) -> list[int]:
    return sorted({shift.severity for shift in block.parts})


def _own_error(block: ResultBlock, method: str) -> float:
    return mean_error(block, method)[0]


def forward_passes(folder: Path) -> float:
    """Return the mean number of forward passes of `restore` per point, counting early exits."""
    with open_for_reading(folder) as store:
        statuses = [record.status for record in store.records() if record.method == "restore"]
    row = TABLE["restore"].defaults
    averaged = sum(status == Status.AVERAGED for status in statuses) / len(statuses)
    return 1 + row["early_views"] + averaged * row["n_views"]


def _table(
    rows: Sequence[tuple[str, ResultBlock]],
    methods: Sequence[str],
    baselines: Sequence[str],
    error_of: ErrorOf = _own_error,
) -> str:
    """Return a table of errors and of restore's change to the baselines."""
    head = ["error %", *methods, *(f"to {baseline}" for baseline in baselines)]
    lines = [table_row(head), table_row(["---"] * len(head))]
    for name, block in rows:
        errors = [formatting.percent(error_of(block, method)) for method in methods]
        changes = [_change(block, baseline, error_of) for baseline in baselines]
        lines.append(table_row([name, *errors, *changes]))
    return "\n".join(lines)


def _change(block: ResultBlock, baseline: str, error_of: ErrorOf) -> str:
    """Return restore's change to a baseline, with its 95 % interval if the points of both are known."""
    change = compare(block, "restore", baseline)
    if change is None:
        return formatting.percentage_points(error_of(block, "restore") - error_of(block, baseline))
    return f"{formatting.percentage_points(change.difference)} ({formatting.change_interval(change)})"


@click.command(help=__doc__)
@click.argument("out", type=click.Path(exists=True, path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
def main(out: Path, docs: Path) -> None:
    shown = list(steps(AUTHORS))
    commands = {step.name: shlex.join(step.command(OUT)) for step in shown}
    runs = {name: run for name, run in open_started(out, shown) if not run.missing}
    reproduced = [step.name for step in reproduction_runs.steps(AUTHORS)]
    files = {docs / "reproduction.csv": reproduced}
    files[docs / "beyond.csv"] = [name for name in commands if name not in reproduced]
    for path, names in files.items():
        result_files.update_csv(path, names, runs)
    page = Page([row for path in files for row in result_files.read_csv(path)], runs, commands)
    writers = {
        "output": lambda name: (out / name).read_text("utf-8") if (out / name).exists() else None,
        "clean": page.clean,
        "levels": page.levels,
        "corruptions": page.corruptions,
        "time": page.time,
    }
    fill_page(docs / "beyond.md", writers)


if __name__ == "__main__":
    main()
