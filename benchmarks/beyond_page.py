"""Fills docs/beyond.md from runs: python -m benchmarks.beyond_page --help."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from benchmarks.beyond import steps
from benchmarks.marked import fill_page
from benchmarks.reproduction_page import AUTHORS, OUT, PICTURES, begun
from memo_tta.evaluation.analysis import Answers, Block, Shift, compare, mean_error
from memo_tta.report import written
from memo_tta.report.run import Run

METHODS = ("source", "tta", "memo", "restore")
PICTURE_METHODS = ("source", "tta", "bn1", "memo", "tent-bs1", "restore")
SURE = "tta, sure views"


class Page:
    """What the runs say, table by table."""

    def __init__(self, runs: Mapping[str, Run], commands: Mapping[str, str]):
        self._runs, self._commands = runs, commands

    def levels(self, name: str) -> str:
        """One of the ResNet-26: clean images, and the average over corruptions at each level."""
        clean = self._joined(f"{name}/cifar10", f"{name}/restore")
        corrupted = self._joined(f"{name}/cifar10-c", f"{name}/restore-c")
        rows = [("clean", clean)]
        rows += [(f"level {level}", _at(corrupted, level)) for level in _levels(corrupted)]
        rows.append(("all levels", corrupted))
        commands = self._shown(f"{name}/restore", f"{name}/restore-c")
        return commands + _table(["error %", *METHODS], rows, METHODS)

    def corruptions(self, name: str) -> str:
        """The same, corruption by corruption, at the highest level."""
        block = self._joined(f"{name}/cifar10-c", f"{name}/restore-c", f"{name}/sure-augmix-c")
        block = _at(block, max(_levels(block), default=0))
        methods = [method for method in (*METHODS[:-1], SURE, "restore") if method in block.methods]
        rows = [
            (shift.corruption.replace("_", " "), Block(block.dataset, {shift: block.parts[shift]}))
            for shift in block.parts
        ]
        rows.append(("average", block))
        commands = self._shown(*(n for n in (f"{name}/sure-augmix-c",) if n in self._commands))
        return commands + _table(["error %", *methods], rows, methods)

    def pictures(self, name: str) -> str:
        clean = self._joined(f"{name}/clean", f"{name}/clean-restore")
        corrupted = self._joined(f"{name}/corrupted", f"{name}/corrupted-restore")
        rows = [("clean", clean)]
        rows += [
            (
                f"{shift.corruption.replace('_', ' ')}, level {shift.severity}",
                Block(corrupted.dataset, {shift: part}),
            )
            for shift, part in corrupted.parts.items()
        ]
        rows.append(("average, corrupted", corrupted))
        commands = self._shown(f"{name}/clean-restore", f"{name}/corrupted-restore")
        return commands + _table(["error %", *PICTURE_METHODS], rows, PICTURE_METHODS)

    def time(self, name: str) -> str:
        """Seconds of a point, on average, and as a share of MEMO's."""
        head = ["seconds", *METHODS, "restore / memo", "of it, views"]
        lines = [_line(head), _line(["---"] * len(head))]
        for run, about in ((f"{name}/time", "clean"), (f"{name}/time-c", "level 5")):
            if run not in self._runs:
                return self._shown(run) + "Not run yet."
            (block,) = self._runs[run].blocks
            pooled = {method: block.pooled(method) for method in METHODS}
            seconds = {method: float(found.seconds.mean()) for method, found in pooled.items()}
            views = float(pooled["restore"].views_seconds.mean()) / seconds["restore"]
            shares = [f"{seconds['restore'] / seconds['memo']:.2f}", f"{100 * views:.0f} %"]
            lines.append(_line([about, *(f"{seconds[method]:.3f}" for method in METHODS), *shares]))
        return self._shown(f"{name}/time", f"{name}/time-c") + "\n".join(lines)

    def _shown(self, *names: str) -> str:
        return "```sh\n" + "\n".join(self._commands[name] for name in names) + "\n```\n\n" if names else ""

    def _joined(self, *names: str) -> Block:
        """The same points in several runs, as if one had asked all methods."""
        parts: dict[Shift, dict[str, Answers]] = {}
        dataset = ""
        for name in names:
            if name not in self._runs:
                continue
            (block,) = self._runs[name].blocks
            dataset = block.dataset
            for shift, methods in block.parts.items():
                renamed = {SURE if "sure-augmix" in name else method: a for method, a in methods.items()}
                parts.setdefault(shift, {}).update(renamed)
        return Block(dataset, parts)


def _at(block: Block, level: int) -> Block:
    return Block(
        block.dataset, {shift: part for shift, part in block.parts.items() if shift.severity == level}
    )


def _levels(block: Block) -> list[int]:
    return sorted({shift.severity for shift in block.parts})


def _table(head: Sequence[str], rows: Sequence[tuple[str, Block]], methods: Sequence[str]) -> str:
    """Errors, and what `restore` changes to `memo`, point by point."""
    rows = [(about, block) for about, block in rows if block.parts]
    if not rows:
        return "Not run yet."
    return "\n".join(_lines([*head, "to memo", "95 %"], rows, methods))


def _lines(head: Sequence[str], rows: Sequence[tuple[str, Block]], methods: Sequence[str]) -> Iterator[str]:
    yield _line(head)
    yield _line(["---"] * len(head))
    for about, block in rows:
        errors = [
            written.percent(mean_error(block, method)[0]) if block.answers(method) else ""
            for method in methods
        ]
        change = compare(block, "restore", "memo")
        changes = (
            ["", ""] if change is None else [written.points(change.difference), written.change_span(change)]
        )
        yield _line([about, *errors, *changes])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


@click.command(help=__doc__)
@click.argument("out", type=click.Path(exists=True, path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
def main(out: Path, docs: Path) -> None:
    shown = list(steps(OUT, AUTHORS, PICTURES))
    runs = {name: run for name, run in begun(out, shown) if not run.missing}
    page = Page(runs, {step.name: shlex.join(step.command(OUT)) for step in shown})
    kinds = {
        "output": lambda name: (out / name).read_text("utf-8") if (out / name).exists() else "Not run yet.",
        "levels": page.levels,
        "corruptions": page.corruptions,
        "pictures": page.pictures,
        "time": page.time,
    }
    fill_page(docs / "beyond.md", kinds)


if __name__ == "__main__":
    main()
