"""Run the parts of the suite and show what they measured."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from memo_tta.bench import (
    adaptation,
    cluster,
    corruptions,
    evaluation,
    loading,
    memory,
    prediction,
    startup,
    views,
)
from memo_tta.bench.measurement import Measurement
from memo_tta.files import atomic_file
from memo_tta.registry import Registry

PARTS = Registry(
    "part",
    {
        "views": views.run,
        "prediction": prediction.run,
        "adaptation": adaptation.run,
        "memory": memory.run,
        "startup": startup.run,
        "corruptions": corruptions.run,
        "loading": loading.run,
        "evaluation": evaluation.run,
        "cluster": cluster.run,
    },
)
ONLY_WHEN_NAMED = {"cluster"}  # needs Ray, and minutes


def run(only: Sequence[str], as_json: bool, page: Path | None) -> int:
    """Run the named parts, or all that are quick; 1 if a bar is missed."""
    names = only or [name for name in PARTS if name not in ONLY_WHEN_NAMED]
    return show({name: PARTS[name] for name in names}, as_json, page)


def show(
    parts: Mapping[str, Callable[[], Iterable[Measurement]]], as_json: bool = False, page: Path | None = None
) -> int:
    """Run the parts and print what they measured; 1 if a bar is missed."""
    rows: list[Measurement] = []
    for name, part in parts.items():
        click.echo(f"{name} ...", err=True)
        for row in part():
            rows.append(row)
            if as_json:
                click.echo(json.dumps({"part": name, **asdict(row), "holds": row.holds}))
    if not as_json:
        Console().print(_table(rows))
    if page is not None:
        from memo_tta.bench.page import write

        click.echo("plots ...", err=True)
        with atomic_file(page) as path:
            path.write_text(write(rows), "utf-8")
        click.echo(f"wrote {page}", err=True)
    return 0 if all(row.holds for row in rows) else 1


def _table(rows: list[Measurement]) -> Table:
    table = Table("what", "measured", "bar", "", "how", box=None, pad_edge=False)
    for row in rows:
        verdict = "[green]holds[/]" if row.holds else "[red]missed[/]"
        bar = ("", "") if row.bar is None else (f"≤ {_number(row.bar)} {row.unit}".strip(), verdict)
        table.add_row(row.name, f"{_number(row.measured)} {row.unit}".strip(), *bar, row.detail)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
