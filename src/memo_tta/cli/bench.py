"""`memo bench`: the speed suite."""

from pathlib import Path

import click


@click.command(epilog="Example: memo bench --only adaptation")
@click.option("--only", multiple=True, metavar="NAME", help="Run this part alone (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row instead of a table.")
@click.option("--page", type=click.Path(path_type=Path), help="Write a page with plots here.")
@click.pass_context
def bench(ctx: click.Context, only: tuple[str, ...], as_json: bool, page: Path | None) -> None:
    """Measure speed and memory, as ratios within one run; the exit code is 1 if a bar is missed.

    The part `cluster`, what Ray costs, runs only when it is named: it takes minutes.
    """
    from memo_tta.bench.suite import run

    ctx.exit(run(only, as_json, page))
