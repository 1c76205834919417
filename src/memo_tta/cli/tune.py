"""`memo tune`: search MEMO's options on validation corruptions, as in the paper."""

from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from memo_tta.cli.engine import choose_engine, engine_options
from memo_tta.cli.evaluate import parse_severities
from memo_tta.cli.progress import progress


@click.command(epilog="Example: memo tune cifar10 --model resnet26 --limit 200 --out memo.toml")
@click.argument("data")
@click.option("--model", required=True, help="A name from `memo models`.")
@click.option("--weights", type=click.Path(path_type=Path), help="A .safetensors, .pth or .npz file.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="TOML file to write.")
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1),
    help="Images per corruption and severity.",
)
@click.option("--severities", default="3", show_default=True, help="Comma-separated severity levels, 1 to 5.")
@click.option(
    "--n-views", type=click.IntRange(1), help="Views per image in the trials [default: the model's setting]."
)
@engine_options
@click.option("--seed", default=0, show_default=True, help="Seed of the views and the corruptions.")
def tune(
    data: str,
    model: str,
    weights: Path | None,
    out: Path,
    limit: int,
    severities: str,
    n_views: int | None,
    seed: int,
    **engine_choice: Any,
) -> None:
    """Search MEMO's options for a model on the validation corruptions of DATA.

    DATA is a clean data set, or one with validation corruptions. As in the paper, the search is greedy:
    first the learning rate by powers of ten, then values around the best, the number of steps, the threshold
    and the prior strength. Trials are stored beside --out: run the same command again to resume the search.
    Pass the result to `memo evaluate` or `memo predict` with --config.
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
        severities=parse_severities(severities),
        limit=limit,
        seed=seed,
    )
    count = trial_count(load(model, weights).module)
    images = limit * 4 * len(parse_severities(severities))
    click.echo(f"{count} trials of {images} images: at most {(count - 1) * images:,} adaptations", err=True)
    trials: list[Trial] = []
    began = perf_counter()
    with choose_engine(**engine_choice) as engine, progress("images") as update:

        def on_records(done: int, total: int, _errors: object) -> None:
            update(len(trials) * total + done, count * total, f"trial {len(trials) + 1} of {count}")

        for trial in search(job, out.with_name(f"{out.name}.trials"), engine, on_records):
            trials += [trial]  # on_records counts them
    command = f"memo tune {data} --model {model} --limit {limit} --severities {severities} --seed {seed}"
    with atomic_file(out) as temporary:
        temporary.write_text(as_toml(trials, command), "utf-8")
    table = Table("error", "method", "options", box=None, pad_edge=False)
    for trial in trials:
        options = ", ".join(f"{key} = {value}" for key, value in trial.options.items())
        style = "[bold green]" if trial is best_of(trials) else ""
        table.add_row(f"{style}{trial.error:.2%}", trial.method, options)
    Console().print(table)
    seconds = perf_counter() - began
    click.echo(f"{out}: the best of {count} trials, in {seconds:.0f} s; use it with --config {out}")
