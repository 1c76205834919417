"""`memo evaluate`: compare methods on labelled data, image by image, resumable."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memo_tta.cli.engine import choose_engine, engine_options
from memo_tta.cli.method_options import adaptation_options, all_method_options, configured_method
from memo_tta.cli.model_options import ModelChoice, model_options
from memo_tta.progress import progress

if TYPE_CHECKING:
    from memo_tta.evaluation.records import FailedRecord, SkippedPoint

SOME_LEFT_OUT = 3  # exit code: done, but some images or predictions were left out


@click.command(
    epilog="Example: memo evaluate cifar10 --model resnet26 --methods source,tta,memo "
    "--corruptions fog,snow --severities 3,5 --limit 500 --out runs/weather"
)
@click.argument("data", nargs=-1, required=True)
@model_options()
@adaptation_options
@click.option(
    "--methods",
    help="Comma-separated names from `memo methods` [default: source,tta,memo, or with --config source and "
    "the method that it names].",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the run.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    help="Images per data set, corruption and severity, spread over the classes [default: all].",
)
@click.option(
    "--corruptions",
    help="Comma-separated names [default: those of DATA]; clean DATA is corrupted on the fly.",
)
@click.option("--severities", help="Comma-separated severity levels, 1 to 5 [default: all five].")
@click.option(
    "--order",
    default="iid",
    show_default=True,
    help="Order of the images for methods that learn on or take several at once: iid (at random), sorted (by "
    "class), mixed (all corruptions and levels of DATA at random, in one stream), gradual (rising levels of "
    "one corruption after the other, in one stream) or data (as it has them). For DATA without corruptions, "
    "mixed and gradual are iid. Other methods predict the same in any order.",
)
@engine_options
@click.option("--skip-bad", is_flag=True, help="Skip unreadable images, and record them as skipped.")
@click.pass_context
def evaluate(
    ctx: click.Context,
    data: Sequence[str],
    model: ModelChoice,
    methods: str | None,
    options: Sequence[str],
    config: Path | None,
    seed: int | None,
    out: Path,
    limit: int | None,
    corruptions: str | None,
    severities: str | None,
    order: str,
    skip_bad: bool,
    **engine_choice: Any,
) -> None:
    """Run methods on DATA and record every prediction in the folder --out.

    DATA is a name from `memo datasets`, a folder with one sub-folder per class, an .npz file, a .csv or
    .parquet table of paths and labels, a .tar file of samples, or hfds:NAME. Run the same command again to
    resume an interrupted run; `memo report` shows the results. The exit code is 3 if some predictions failed,
    or images were skipped, and were left out.
    """
    from memo_tta.evaluation.driver import evaluate as run
    from memo_tta.evaluation.job import EvaluationJob
    from memo_tta.methods import METHODS

    names = (methods or _default_methods(config)).split(",")
    job = EvaluationJob(
        data=data,
        model=model.model,
        **model.arguments,
        methods=names,
        options=all_method_options(names, list(METHODS), config, options),
        corruptions=corruptions.split(",") if corruptions else None,
        severities=parse_severities(severities) if severities else None,
        limit=limit,
        seed=seed or 0,
        order=order,
        skip_bad=skip_bad,
    )
    with choose_engine(**engine_choice) as engine, progress("records") as update:

        def on_records(done: int, total: int, errors: dict[str, tuple[int, int]]) -> None:
            shown = (f"{name} {wrong / count:.1%}" for name, (wrong, count) in errors.items() if count)
            update(done, total, " · ".join(shown))

        left_out = run(job, out, engine, on_records, lambda memory: click.echo(f"memo: {memory}", err=True))
    if failed := left_out.failed:
        click.echo(
            f"{out}: {len(failed)} predictions failed and were left out, the first for {place(failed[0])} "
            f"({failed[0].method}, {failed[0].reason}); run the same command again to retry them",
            err=True,
        )
    if skipped := left_out.skipped:
        click.echo(
            f"{out}: {len(skipped)} images could not be read and were left out, the first is "
            f"{place(skipped[0])} ({skipped[0].reason})",
            err=True,
        )
    click.echo(f"{out}: done; see it with `memo report {out}`")
    ctx.exit(SOME_LEFT_OUT if failed or skipped else 0)


def _default_methods(config: Path | None) -> str:
    method = configured_method(config)
    return "source,tta,memo" if method is None else ",".join(dict.fromkeys(["source", method]))


def place(row: "FailedRecord | SkippedPoint") -> str:
    """Return the part of the data and the sample of a row."""
    return " ".join(filter(None, (row.dataset, row.corruption, str(row.severity or ""), row.sample)))


def parse_severities(text: str) -> list[int]:
    """Parse comma-separated severity levels."""
    if not all(severity.isdecimal() for severity in text.split(",")):
        raise click.UsageError(f"--severities: expected numbers like 3,5, got {text!r}")
    return [int(severity) for severity in text.split(",")]
