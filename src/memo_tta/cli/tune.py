"""`memo tune`: the paper's search for MEMO's options, on validation corruptions."""

from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from memo_tta.cli.engine import choose_engine, engine_options
from memo_tta.cli.evaluate import levels
from memo_tta.cli.progress import progress


@click.command(epilog="Example: memo tune cifar10 --model resnet26 --limit 200 --out memo.toml")
@click.argument("data")
@click.option("--model", required=True, help="A name from `memo models`.")
@click.option("--weights", type=click.Path(path_type=Path), help=".safetensors, .pth or .npz file.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The TOML file to write.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="Points a corruption.")
@click.option("--severities", default="3", show_default=True, help="Comma-separated levels, 1 to 5.")
@click.option("--n-views", type=click.IntRange(1), help="Views while tuning; the model's own unless given.")
@engine_options
@click.option("--seed", default=0, show_default=True)
def tune(
    data: str,
    model: str,
    weights: Path | None,
    out: Path,
    limit: int,
    severities: str,
    n_views: int | None,
    seed: int,
    **where: Any,
) -> None:
    """Find MEMO's options for a model on DATA, a clean data set or one with validation corruptions.

    The learning rate by decades and then around the best, the steps, the threshold, the prior strength:
    as in the paper, one after the other. Trials are kept beside --out, so starting the same command
    again goes on. `memo evaluate` and `memo predict` take the result with --config.
    """
    from memo_tta.evaluation.job import EvaluationJob
    from memo_tta.evaluation.tune import Trial, as_toml, best_of, trial_count
    from memo_tta.evaluation.tune import tune as search
    from memo_tta.files import atomic_file
    from memo_tta.models.zoo import load

    job = EvaluationJob(
        data=(data,),
        model=model,
        weights=None if weights is None else str(weights.resolve()),
        options={} if n_views is None else {"memo": {"n_views": n_views}},
        severities=levels(severities),
        limit=limit,
        seed=seed,
    )
    trials = trial_count(load(model, weights).module)
    points = limit * 4 * len(levels(severities))
    click.echo(f"{trials} trials of {points} points: {(trials - 1) * points:,} adaptations at most", err=True)
    found: list[Trial] = []
    began = perf_counter()
    with choose_engine(**where) as engine, progress("points") as update:

        def report(done: int, total: int, _errors: object) -> None:
            note = f"trial {len(found) + 1} of {trials}"
            update(len(found) * total + done, trials * total, note)

        for trial in search(job, out.with_name(f"{out.name}.trials"), engine, report):
            found += [trial]  # the report counts them
    command = f"memo tune {data} --model {model} --limit {limit} --severities {severities} --seed {seed}"
    with atomic_file(out) as part:
        part.write_text(as_toml(found, command), "utf-8")
    table = Table("error", "method", "options", box=None, pad_edge=False)
    for trial in found:
        options = ", ".join(f"{key} = {value}" for key, value in trial.options.items())
        mark = "[bold green]" if trial is best_of(found) else ""
        table.add_row(f"{mark}{trial.error:.2%}", trial.method, options)
    Console().print(table)
    click.echo(f"{out}: the best of {trials} in {perf_counter() - began:.0f} s; use it with --config {out}")
