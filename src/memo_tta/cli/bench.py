"""`memo bench`: run the speed suite."""

from pathlib import Path

import click


@click.command(epilog="Example: memo bench --only adaptation")
@click.option("--only", multiple=True, metavar="PART", help="Run only this part (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per measurement, not a table.")
@click.option("--page", type=click.Path(path_type=Path), help="Write an HTML page with plots to this file.")
@click.pass_context
def bench(ctx: click.Context, only: tuple[str, ...], as_json: bool, page: Path | None) -> None:
    """Measure speed and memory on this machine, mostly as ratios between two sides that take turns.

    The parts are views, prediction, adaptation, restore, memory, startup, corruptions, loading, evaluation
    and cluster. The last one measures the overhead of Ray, takes minutes, and only runs with --only cluster.
    A part whose optional packages are not installed is left out.

    The exit code is 1 if a measurement is above its bar.
    """
    from memo_tta.bench.suite import run

    ctx.exit(run(only, as_json, page))
