"""`memo bench`: the speed suite, which lives in benchmarks/ and travels with the package."""

import sys
from importlib import import_module
from pathlib import Path

import click

from memo_tta.errors import MemoError

PACKAGE = Path(__file__).parent.parent
HOMES = (PACKAGE, PACKAGE.parent.parent)  # an installed wheel, a checkout


@click.command(epilog="Example: memo bench --only adaptation")
@click.option("--only", multiple=True, metavar="NAME", help="Run this part alone (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row instead of a table.")
@click.option("--page", type=click.Path(path_type=Path), help="Write a page with plots here.")
@click.pass_context
def bench(ctx: click.Context, only: tuple[str, ...], as_json: bool, page: Path | None) -> None:
    """Measure speed and memory, as ratios within one run; the exit code is 1 if a bar is missed.

    The part `cluster`, what Ray costs, runs only when it is named: it takes minutes.
    """
    home = next((home for home in HOMES if (home / "benchmarks" / "suite.py").is_file()), None)
    if home is None:
        raise MemoError(f"benchmarks: not found beside {PACKAGE}: run it from a checkout")
    sys.path.insert(0, str(home))
    ctx.exit(import_module("benchmarks.suite").run(only, as_json, page))
