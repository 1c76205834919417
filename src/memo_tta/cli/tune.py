"""`memo tune`: search MEMO's options on validation corruptions and clean images."""

from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from memo_tta.cli.engine import choose_engine, engine_options
from memo_tta.cli.evaluate import SOME_LEFT_OUT, parse_severities, place
from memo_tta.cli.model_options import ModelChoice, model_options
from memo_tta.progress import progress


@click.command(epilog="Example: memo tune cifar10 --model resnet26 --limit 200 --out memo.toml")
@click.argument("data")
@model_options()
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
    "--harm",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0),
    help="Percentage points of error that a setting may add on clean images.",
)
@click.option(
    "--n-views", type=click.IntRange(1), help="Views per image in the trials [default: the model's setting]."
)
@engine_options
@click.option("--seed", default=0, show_default=True, help="Seed of the views and the corruptions.")
@click.pass_context
def tune(
    ctx: click.Context,
    data: str,
    model: ModelChoice,
    out: Path,
    limit: int,
    severities: str,
    harm: float,
    n_views: int | None,
    seed: int,
    **engine_choice: Any,
) -> None:
    """Search MEMO's options for a model on the validation corruptions of DATA, without harm on clean images.

    DATA is a clean data set, or one with validation corruptions. As in the paper, the search is greedy:
    first the learning rate by powers of ten, then values around the best, the number of steps, the threshold
    and the prior strength. A setting that adds more than --harm to the error on clean images is not chosen;
    if all do, weaker batch-norm mixing is tried, and at last the source model is recommended. Trials are
    stored beside --out: run the same command again to resume the search. Pass the result to `memo evaluate`
    or `memo predict` with --config. The exit code is 3 if some predictions failed; they count as wrong.
    """
    from memo_tta.evaluation.job import EvaluationJob
    from memo_tta.evaluation.tune import Search, Trial, as_toml, best_of, summary, trial_count
    from memo_tta.files import atomic_file, check_output_file, check_output_folder, remove_partial_copies

    folder = out.with_name(f"{out.name}.trials")
    check_output_file(out)
    check_output_folder(folder)
    given = {} if n_views is None else {"n_views": n_views}
    job = EvaluationJob(
        data=(data,),
        model=model.model,
        **model.arguments,
        options={"memo": given} if given else {},
        severities=parse_severities(severities),
        limit=limit,
        seed=seed,
    )
    classifier = model.load()
    count = trial_count(classifier.module)
    images = limit * 4 * len(parse_severities(severities))
    click.echo(
        f"at most {count} trials of {images} corrupted images, the best of them on as many clean ones",
        err=True,
    )
    trials: list[Trial] = []
    began = perf_counter()
    with choose_engine(**engine_choice) as engine, progress("images") as update:

        def on_records(done: int, total: int, _errors: object) -> None:
            before, after = sum(trial.images for trial in trials), (count - len(trials) - 1) * images
            update(before + done, before + total + after, f"trial {len(trials) + 1} of at most {count}")

        search = Search(job, folder, engine, on_records, harm / 100)
        for trial in search.run(classifier):
            trials += [trial]  # on_records counts them
    command = f"memo tune {data} {model} --limit {limit} --severities {severities} --harm {harm:g}"
    command += "".join(f" --n-views {value}" for value in given.values()) + f" --seed {seed}"
    remove_partial_copies(out)
    with atomic_file(out) as temporary:
        temporary.write_text(as_toml(trials, harm / 100, given, command), "utf-8")
    chosen = best_of(trials, harm / 100)
    table = Table("error", "clean", "method", "options", box=None, pad_edge=False)
    for trial in trials:
        options = ", ".join(f"{key} = {value}" for key, value in trial.options.items())
        clean = "" if trial.harm is None else f"{100 * trial.harm.difference:+.2f}"
        style = "[bold green]" if trial is chosen else ""
        table.add_row(f"{style}{trial.error:.2%}", clean, trial.method, options)
    Console().print(table)
    for line in summary(trials, harm / 100):
        click.echo(line)
    seconds = perf_counter() - began
    use = f"use it with --config {out}" if chosen is not None else "it holds no options"
    click.echo(f"{out}: {len(trials)} trials in {seconds:.0f} s; {use}")
    failed = [row for rows in search.failed.values() for row in rows]
    if failed:
        click.echo(
            f"{folder}: {len(failed)} predictions failed and count as wrong, the first for "
            f"{place(failed[0])} ({failed[0].method}, {failed[0].reason}); "
            "run the same command again to retry them",
            err=True,
        )
        ctx.exit(SOME_LEFT_OUT)
