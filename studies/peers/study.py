"""This package beside torch-ttt, ttach and imagecorruptions: python -m studies.peers.study --help.

Installs them into two virtual environments in OUT and runs each entry there, in a process of its own; a
second start resumes. Then writes docs/peers.csv, docs/peers.json and the tables of docs/peers.md.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from memo_tta.files import atomic_file
from studies.peers import environment, page
from studies.peers.results import costs, csv_rows
from studies.result_files import write_csv

OUT = Path("runs/peers")
CHECKED = ("resnet26", "resnet20-bn", "cct2")
OWN = ("source", "restore", "tta", "memo")
MEASURED = {
    "resnet26": (*OWN, "MemoEngine", "MemoEngine, 32 views", "DeYOEngine", "five crops"),
    "resnet20-bn": (
        *OWN,
        "tent-episodic",
        "TentEngine",
        "DeYOEngine",
        "ActMADEngine",
        "ActMADEngine, norm layer",
        "five crops",
    ),
}

Step = tuple[str, Callable[[], Any]]  # the name of a result, and what computes it


def steps(out: Path, limit: int) -> Iterator[Step]:
    """Yield everything that is computed, in this order."""
    project = environment.project(out)
    yield "attempts", lambda: list(environment.attempts(out))
    yield "versions", lambda: environment.versions(project)
    yield "corruptions", lambda: _corruptions(project, out / "data")
    for model in CHECKED:
        yield f"checks/{model}", partial(project.run_json, "studies.peers.checks", model)
    for model, names in MEASURED.items():
        for name in names:
            words = ("studies.peers.measurement", model, name, limit)
            yield f"measured/{model}/{name}", partial(project.run_json, *words)


def _corruptions(project: environment.Environment, data: Path) -> Any:
    project.run("memo_tta", "data", "get", "frost", MEMO_DATA=str(data))
    return project.run_json("studies.peers.corruption_differences", MEMO_DATA=str(data))


def result_path(out: Path, name: str) -> Path:
    """Return where a result is kept."""
    return out / "results" / f"{name}.json"


def collect(out: Path) -> dict[str, Any]:
    """Return all results that are there; those whose names have slashes as nested dictionaries."""
    found: dict[str, Any] = {}
    for name, _ in steps(out, 0):
        path = result_path(out, name)
        if path.exists():
            *folders, last = name.split("/")
            place = found
            for folder in folders:
                place = place.setdefault(folder, {})
            place[last] = json.loads(path.read_text("utf-8"))
    return found


def write_json(path: Path, value: Any) -> None:
    """Write a file that appears complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as part:
        part.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


@click.command(help=__doc__)
@click.argument("out", default=OUT, type=click.Path(path_type=Path))
@click.option("--limit", default=100, show_default=True, help="Images of each part.")
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
@click.option("--page-only", is_flag=True, help="Run nothing; write the page from docs/peers.csv and .json.")
def main(out: Path, limit: int, docs: Path, page_only: bool) -> None:
    if not page_only:
        for name, compute in steps(out.resolve(), limit):
            path = result_path(out, name)
            if not path.exists():
                click.echo(name)
                write_json(path, compute())
        found = collect(out)
        measured = found.pop("measured")
        write_csv(docs / "peers.csv", csv_rows(measured))
        write_json(docs / "peers.json", {**found, "costs": costs(measured)})
    page.write(docs)


if __name__ == "__main__":
    main()
