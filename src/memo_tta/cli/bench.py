"""`memo bench`: run the speed suite."""

from pathlib import Path
from typing import Any

import click

from memo_tta.cli.model_options import ModelChoice, loading_options


@click.command(
    epilog="Example: memo bench --only adaptation. With your own model: "
    "memo bench --model resnet50 --weights w.pth --page costs.html"
)
@click.option("--only", multiple=True, metavar="PART", help="Run only this part (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per measurement, not a table.")
@click.option("--page", type=click.Path(path_type=Path), help="Write an HTML page with plots to this file.")
@click.option("--model", help="Measure what each method costs with this model instead; no data is needed.")
@loading_options
@click.pass_context
def bench(
    ctx: click.Context,
    only: tuple[str, ...],
    as_json: bool,
    page: Path | None,
    model: str | None,
    **loading: Any,
) -> None:
    """Measure speed and memory on this machine, mostly as ratios between two sides that take turns.

    The parts are views, prediction, adaptation, restore, shared_passes, last_blocks, wrapping, memory,
    startup, corruptions, loading, evaluation and cluster. The last one measures the overhead of Ray, takes
    minutes, and only runs with --only cluster. A part whose optional packages are not installed is left out.

    The exit code is 1 if a measurement is above its bar.
    """
    from memo_tta.bench.suite import run, run_own_model

    for name, value in loading.items():
        if model is None and value is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --model")
    if model is not None:
        if only:
            raise click.UsageError("--only chooses parts of the suite: use it without --model")
        ctx.exit(run_own_model(model, ModelChoice(model, **loading).arguments, as_json, page))
    ctx.exit(run(only, as_json, page))
