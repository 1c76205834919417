"""`memo advise`: find out which method to use, from labelled images."""

import shlex
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from memo_tta.cli.engine import choose_engine, engine_options
from memo_tta.cli.evaluate import SOME_LEFT_OUT, parse_severities
from memo_tta.cli.model_options import ModelChoice, model_options
from memo_tta.progress import progress


@click.command(epilog="Example: memo advise photos --model efficientnet_lite0 --budget 100ms --out memo.toml")
@click.argument("data")
@model_options()
@click.option("--out", required=True, type=click.Path(path_type=Path), help="TOML file to write.")
@click.option("--budget", help="The longest an image may take, like 100ms or 0.5s [default: no limit].")
@click.option(
    "--harm",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0),
    help="Percentage points that a method may add to the error on clean images.",
)
@click.option("--shifted", help="Your own shifted images, instead of corrupted copies of DATA.")
@click.option("--stream", is_flag=True, help="Try methods that learn from image to image, too.")
@click.option(
    "--limit",
    default=200,
    show_default=True,
    type=click.IntRange(1),
    help="Images of DATA, and of every kind of shifted ones; spread over the classes.",
)
@click.option("--severities", default="4", show_default=True, help="Levels of the corruptions, 1 to 5.")
@click.option("--time-limit", default="10min", show_default=True, help="About how long the race may take.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the advice as a page to this file, too.")
@click.option("--skip-bad", is_flag=True, help="Skip unreadable images.")
@engine_options
@click.option("--seed", default=0, show_default=True, help="Seed of the images, views and corruptions.")
@click.pass_context
def advise(
    ctx: click.Context,
    data: str,
    model: ModelChoice,
    out: Path,
    budget: str | None,
    harm: float,
    shifted: str | None,
    stream: bool,
    limit: int,
    severities: str,
    time_limit: str,
    html: Path | None,
    skip_bad: bool,
    seed: int,
    **engine_choice: Any,
) -> None:
    """Find out which method to use with a model, from the labelled, clean images DATA.

    Methods race: all predict a few images, clean and shifted, and the promising ones more. The one with the
    fewest errors on shifted images is chosen; errors that it adds on clean images beyond --harm count against
    it. Methods that are proven to exceed --harm, or that take longer than --budget, are left out. If nothing
    helps without harm, source is chosen, the model as it is. Shifted images are made from DATA by the four
    validation corruptions, or named with --shifted. `memo predict`, `memo evaluate` and `memo serve` take
    the result with --config. Records are stored beside --out: run the same command again to resume.
    """
    from memo_tta.evaluation.advice import AdviceRequest, prepare_race
    from memo_tta.evaluation.advice import advise as run
    from memo_tta.evaluation.job import EvaluationJob
    from memo_tta.evaluation.recommendation import MethodLimits
    from memo_tta.evaluation.time_limits import parse_seconds
    from memo_tta.files import check_output_file, check_output_folder
    from memo_tta.report.advice import advice_config, advise_command, print_advice, race_cost
    from memo_tta.report.advice_page import advice_page

    folder = out.with_name(f"{out.name}.race")
    for path in filter(None, (out, html)):
        check_output_file(path)
    check_output_folder(folder)
    seconds = parse_seconds("--time-limit", time_limit)
    limits = (
        MethodLimits(harm / 100)
        if budget is None
        else MethodLimits(harm / 100, parse_seconds("--budget", budget))
    )
    request = AdviceRequest(
        job=EvaluationJob(
            data=(data,), model=model.model, **model.arguments, limit=limit, seed=seed, skip_bad=skip_bad
        ),
        shifted=shifted,
        severities=parse_severities(severities),
        is_stream=stream,
        limits=limits,
    )
    race = prepare_race(request, folder, model.load())
    click.echo(race_cost(race, seconds), err=True)
    began = perf_counter()
    with choose_engine(**engine_choice) as engine, progress("predictions") as update:
        advice = run(race, engine, seconds, update)
    command = advise_command(request)
    _write(out, advice_config(advice, command))
    print_advice(advice, Console(highlight=False))
    click.echo(f"{out}: written in {perf_counter() - began:.0f} s; use it with --config {out}")
    if html is not None:
        uses = [f"memo {use} {model} --config {shlex.quote(str(out))}" for use in ("predict IMAGE", "serve")]
        _write(html, advice_page(advice, f"{command} --out {shlex.quote(str(out))}", uses))
    if advice.skipped:
        click.echo(f"{folder}: {advice.skipped} images could not be read and were left out", err=True)
        ctx.exit(SOME_LEFT_OUT)


def _write(path: Path, text: str) -> None:
    from memo_tta.files import atomic_file, remove_partial_copies

    remove_partial_copies(path)
    with atomic_file(path) as temporary:
        # A path may hold bytes that are not text.
        temporary.write_text(text, "utf-8", "backslashreplace")
