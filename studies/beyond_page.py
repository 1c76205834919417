"""Fills docs/beyond.md from runs: python -m studies.beyond_page --help.

Runs go into docs/beyond.csv, those that the reproduction has too into its CSV, and tables come from both:
so their runs may have been on other machines. What is nowhere yet leaves its place on the page as it is.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import click

from memo_tta.evaluation.analysis import CorruptionLevel, PointResults, ResultBlock, compare, mean_error
from memo_tta.evaluation.store import open_for_reading
from memo_tta.methods import METHODS as TABLE
from memo_tta.methods import Status
from memo_tta.report import formatting
from memo_tta.report.run import Run
from studies import reproduction_runs, result_files
from studies.beyond_runs import steps
from studies.page_markers import fill_page
from studies.reproduction_page import AUTHORS, OUT, PICTURES, begun

METHODS = ("source", "tta", "memo", "restore")
PICTURE_METHODS = ("source", "tta", "bn1", "memo", "tent-bs1", "restore")


class Page:
    """What the results say, table by table. Only times come from the runs themselves."""

    def __init__(
        self, rows: Sequence[Mapping[str, str]], runs: Mapping[str, Run], commands: Mapping[str, str]
    ):
        self._blocks, self._errors = result_files.blocks(rows), result_files.errors(rows)
        self._runs, self._commands = runs, commands

    def clean(self, name: str) -> str | None:
        """One of the ResNet-26 on clean images."""
        block = self._joined(f"{name}/cifar10", f"{name}/restore") or self._joined(f"{name}/restore")
        if block is None:
            return None
        error = self._counted(f"{name}/cifar10")
        return self._shown(f"{name}/restore") + _table([("clean", block)], METHODS, METHODS[:-1], error)

    def levels(self, name: str) -> str | None:
        """The same, on average over corruptions at each level."""
        block = self._joined(f"{name}/cifar10-c", f"{name}/restore-c")
        if block is None:
            return None
        rows = [(f"level {level}", _at(block, level)) for level in _levels(block)]
        rows.append(("all levels", block))
        return self._shown(f"{name}/restore-c") + _table(rows, METHODS, METHODS[:-1])

    def corruptions(self, name: str) -> str | None:
        """The same, corruption by corruption, at the highest level."""
        block = self._joined(f"{name}/cifar10-c", f"{name}/restore-c")
        if block is None:
            return None
        block = _at(block, max(_levels(block)))
        rows = [
            (shift.corruption.replace("_", " "), ResultBlock(block.dataset, {shift: block.parts[shift]}))
            for shift in block.parts
        ]
        rows.append(("average", block))
        return _table(rows, METHODS, ["memo"])

    def step(self, name: str) -> str | None:
        """What a gradient step adds at the highest level."""
        stepped, plain = (self._joined(f"{name}/{run}") for run in ("stepped-c", "restore-c"))
        if stepped is None or plain is None:
            return None
        parts = {
            shift: {"without": plain.parts[shift]["restore"], "restore": part["memo"]}
            for shift, part in stepped.parts.items()
        }
        change = compare(ResultBlock(plain.dataset, parts), "restore", "without")
        assert change is not None
        about = f"{formatting.points(change.difference)} points ({formatting.change_span(change)})"
        return self._shown(f"{name}/stepped-c") + f"To `restore` without a step: {about}."

    def pictures(self, name: str) -> str | None:
        """A network on pictures; what the other methods do comes from the counts of the reproduction."""
        clean, corrupted = (self._joined(f"{name}/{part}-restore") for part in ("clean", "corrupted"))
        if clean is None or corrupted is None:
            return None
        rows = [("clean", clean)]
        rows += [
            (
                f"{shift.corruption.replace('_', ' ')}, level {shift.severity}",
                ResultBlock(corrupted.dataset, {shift: part}),
            )
            for shift, part in corrupted.parts.items()
        ]
        rows.append(("average, corrupted", corrupted))
        error = self._counted(f"{name}/clean", f"{name}/corrupted")
        commands = self._shown(f"{name}/clean-restore", f"{name}/corrupted-restore")
        return commands + _table(rows, PICTURE_METHODS, ["source"], error)

    def time(self, name: str) -> str | None:
        """Seconds of a point, on average, and as a share of MEMO's; and how often the model is asked."""
        head = ["seconds", *METHODS, "restore / memo", "of it, views", "forward passes of restore"]
        lines = [_line(head), _line(["---"] * len(head))]
        for run, about in ((f"{name}/time", "clean"), (f"{name}/time-c", "level 5")):
            if run not in self._runs:
                return None
            (block,) = self._runs[run].blocks
            pooled = {method: block.pooled(method) for method in METHODS}
            seconds = {method: float(found.seconds.mean()) for method, found in pooled.items()}
            views = float(pooled["restore"].views_seconds.mean()) / seconds["restore"]
            cells = [f"{seconds[method]:.3f}" for method in METHODS]
            cells += [f"{seconds['restore'] / seconds['memo']:.2f}", f"{100 * views:.0f} %"]
            lines.append(_line([about, *cells, f"{passes(self._runs[run].folder):.1f}"]))
        return self._shown(f"{name}/time", f"{name}/time-c") + "\n".join(lines)

    def _shown(self, *names: str) -> str:
        return "```sh\n" + "\n".join(self._commands[name] for name in names) + "\n```\n\n"

    def _counted(self, clean: str, corrupted: str = "") -> Callable[[ResultBlock, str], float]:
        """Errors of methods that a block has no points of: from the counts of these runs."""

        def error(block: ResultBlock, method: str) -> float:
            if method in block.methods:
                return _own_error(block, method)
            run = corrupted if block.corrupted else clean
            return fmean(self._errors[run, shift, method] for shift in block.parts)

        return error

    def _joined(self, *names: str) -> ResultBlock | None:
        """The same points in several runs, as if one had asked all methods; None unless all are there."""
        parts: dict[CorruptionLevel, dict[str, PointResults]] = {}
        dataset = ""
        for name in names:
            if name not in self._blocks:
                return None
            block = self._blocks[name]
            dataset = block.dataset
            for shift, methods in block.parts.items():
                parts.setdefault(shift, {}).update(methods)
        return ResultBlock(dataset, parts)


def _at(block: ResultBlock, level: int) -> ResultBlock:
    return ResultBlock(
        block.dataset, {shift: part for shift, part in block.parts.items() if shift.severity == level}
    )


def _levels(block: ResultBlock) -> list[int]:
    return sorted({shift.severity for shift in block.parts})


def _own_error(block: ResultBlock, method: str) -> float:
    return mean_error(block, method)[0]


def passes(folder: Path) -> float:
    """Of one point through the model, on average: the image, the first views, and the others if they must."""
    with open_for_reading(folder) as store:
        found = [record.status for record in store.records() if record.method == "restore"]
    row = TABLE["restore"].defaults
    averaged = sum(status == Status.AVERAGED for status in found) / len(found)
    return 1 + row["early_views"] + averaged * row["n_views"]


def _table(
    rows: Sequence[tuple[str, ResultBlock]],
    methods: Sequence[str],
    baselines: Sequence[str],
    error: Callable[[ResultBlock, str], float] = _own_error,
) -> str:
    """Errors, and what `restore` changes to the baselines, with the 95 % interval where points are known."""
    head = ["error %", *methods, *(f"to {baseline}" for baseline in baselines)]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, block in rows:
        errors = [formatting.percent(error(block, method)) for method in methods]
        lines.append(_line([name, *errors, *(_change(block, baseline, error) for baseline in baselines)]))
    return "\n".join(lines)


def _change(block: ResultBlock, baseline: str, error: Callable[[ResultBlock, str], float]) -> str:
    change = compare(block, "restore", baseline)
    if change is None:
        return formatting.points(error(block, "restore") - error(block, baseline))
    return f"{formatting.points(change.difference)} ({formatting.change_span(change)})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


@click.command(help=__doc__)
@click.argument("out", type=click.Path(exists=True, path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
def main(out: Path, docs: Path) -> None:
    shown = list(steps(OUT, AUTHORS, PICTURES))
    commands = {step.name: shlex.join(step.command(OUT)) for step in shown}
    runs = {name: run for name, run in begun(out, shown) if not run.missing}
    reproduced = [step.name for step in reproduction_runs.steps(OUT, AUTHORS, PICTURES)]
    files = {docs / "reproduction.csv": reproduced}
    files[docs / "beyond.csv"] = [name for name in commands if name not in reproduced]
    for path, names in files.items():
        result_files.update_csv(path, names, runs)
    page = Page([row for path in files for row in result_files.read_csv(path)], runs, commands)
    kinds = {
        "output": lambda name: (out / name).read_text("utf-8") if (out / name).exists() else None,
        "clean": page.clean,
        "levels": page.levels,
        "corruptions": page.corruptions,
        "pictures": page.pictures,
        "step": page.step,
        "time": page.time,
    }
    fill_page(docs / "beyond.md", kinds)


if __name__ == "__main__":
    main()
