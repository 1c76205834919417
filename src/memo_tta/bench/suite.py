"""Run the parts of the speed suite and show their measurements.

A part is imported only when it runs, so that a missing optional package affects that part alone.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from memo_tta.bench.measurement import Measurement
from memo_tta.errors import MissingExtra
from memo_tta.files import atomic_file
from memo_tta.registry import Registry

EXTRAS = {"numba": "fast", "cv2": "corruptions", "scipy": "corruptions", "ray": "ray", "matplotlib": "report"}


@dataclass(frozen=True)
class SuitePart:
    """A module with a function `run` that yields measurements, and the optional packages that it needs."""

    module: str
    packages: Sequence[str] = ()
    is_default: bool = True  # runs without being named

    def run(self) -> Iterable[Measurement]:
        yield from import_module(self.module).run()


PARTS = Registry(
    "part",
    {
        "views": SuitePart("memo_tta.bench.views", ("numba",)),
        "prediction": SuitePart("memo_tta.bench.prediction"),
        "adaptation": SuitePart("memo_tta.bench.adaptation"),
        "restore": SuitePart("memo_tta.bench.restore"),
        "shared_passes": SuitePart("memo_tta.bench.shared_passes"),
        "last_blocks": SuitePart("memo_tta.bench.last_blocks"),
        "wrapping": SuitePart("memo_tta.bench.wrapping"),
        "memory": SuitePart("memo_tta.bench.memory"),
        "startup": SuitePart("memo_tta.bench.startup"),
        "corruptions": SuitePart("memo_tta.bench.corruptions", ("cv2", "scipy")),
        "loading": SuitePart("memo_tta.bench.loading"),
        "evaluation": SuitePart("memo_tta.bench.evaluation"),
        "cluster": SuitePart("memo_tta.bench.cluster", ("ray", "cv2", "scipy"), is_default=False),
    },
)


def run(only: Sequence[str], as_json: bool, page: Path | None) -> int:
    """Run the named parts, or all default parts that can run; return 1 if a measurement exceeds its bar."""
    if page is not None:
        check_installed("--page", ["matplotlib"])
    for name in only:
        check_installed(f"the part {name}", PARTS[name].packages)
    names = only or _runnable_parts()
    return show({name: PARTS[name].run for name in names}, as_json, page)


def run_own_model(model: str, arguments: Mapping[str, Any], as_json: bool, page: Path | None) -> int:
    """Measure what each method costs with a model of the user's, loaded with these arguments."""
    if page is not None:
        check_installed("--page", ["matplotlib"])
    from memo_tta.bench.own_model import MethodCost, run

    costs: list[MethodCost] = []

    def measure() -> Iterator[Measurement]:
        for cost in run(model, arguments):
            costs.append(cost)
            yield cost.measurement

    code = show({model: measure}, as_json)
    if page is not None:
        from memo_tta.bench.page import render_own_model

        _write_page(page, render_own_model(model, costs))
    return code


def _runnable_parts() -> list[str]:
    """Return the default parts; leave out those with missing packages, with a line on stderr for each."""
    names: list[str] = []
    for name, part in PARTS.items():
        if not part.is_default:
            continue
        try:
            check_installed(f"the part {name}", part.packages)
            names.append(name)
        except MissingExtra as error:
            click.echo(f"memo: left out: {error}", err=True)
    return names


def check_installed(what: str, packages: Sequence[str]) -> None:
    """Raise unless the optional packages are installed; imports none of them."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        extras = ",".join(dict.fromkeys(EXTRAS[package] for package in missing))
        raise MissingExtra(f"{what} needs {' and '.join(missing)}: pip install 'memo-tta[{extras}]'")


def show(
    parts: Mapping[str, Callable[[], Iterable[Measurement]]], as_json: bool = False, page: Path | None = None
) -> int:
    """Run the parts and print their measurements; return 1 if one exceeds its bar."""
    measurements: list[Measurement] = []
    for name, run_part in parts.items():
        click.echo(f"{name} ...", err=True)
        for measurement in run_part():
            measurements.append(measurement)
            if as_json:
                fields = {"part": name, **asdict(measurement), "holds": measurement.holds}
                click.echo(json.dumps(fields))
    if not as_json:
        Console().print(_table(measurements))
    if page is not None:
        from memo_tta.bench.page import render_page

        click.echo("plots ...", err=True)
        _write_page(page, render_page(measurements))
    return 0 if all(measurement.holds for measurement in measurements) else 1


def _write_page(page: Path, text: str) -> None:
    with atomic_file(page) as temporary:
        temporary.write_text(text, "utf-8")
    click.echo(f"wrote {page}", err=True)


def _table(measurements: list[Measurement]) -> Table:
    table = Table("what", "measured", "bar", "", "how", box=None, pad_edge=False)
    for m in measurements:
        verdict = "[green]holds[/]" if m.holds else "[red]missed[/]"
        bar = ("", "") if m.bar is None else (f"≤ {_number(m.bar)} {m.unit}".strip(), verdict)
        table.add_row(m.name, f"{_number(m.measured)} {m.unit}".strip(), *bar, m.detail)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
