"""`memo bench`: run the speed suite."""

from pathlib import Path

import click


@click.command(
    epilog="Example: memo bench --only adaptation. With your own model: "
    "memo bench --model resnet50 --weights w.pth --page costs.html"
)
@click.option("--only", multiple=True, metavar="PART", help="Run only this part (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per measurement, not a table.")
@click.option("--page", type=click.Path(path_type=Path), help="Write an HTML page with plots to this file.")
@click.option("--model", help="Measure what each method costs with this model instead; no data is needed.")
@click.option("--weights", type=click.Path(path_type=Path), help="Weights of the model.")
@click.pass_context
def bench(
    ctx: click.Context,
    only: tuple[str, ...],
    as_json: bool,
    page: Path | None,
    model: str | None,
    weights: Path | None,
) -> None:
    """Measure speed and memory on this machine, mostly as ratios between two sides that take turns.

    The parts are views, prediction, adaptation, restore, shared_passes, last_blocks, memory, startup,
    corruptions, loading, evaluation and cluster. The last one measures the overhead of Ray, takes minutes,
    and only runs with --only cluster. A part whose optional packages are not installed is left out.

    The exit code is 1 if a measurement is above its bar.
    """
    from memo_tta.bench.suite import run, run_own_model

    if model is None and weights is not None:
        raise click.UsageError("--weights needs --model")
    if model is not None:
        if only:
            raise click.UsageError("--only chooses parts of the suite: use it without --model")
        ctx.exit(run_own_model(model, None if weights is None else str(weights), as_json, page))
    ctx.exit(run(only, as_json, page))
