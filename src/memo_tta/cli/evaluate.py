"""`memo evaluate`: which method helps on which data, point by point, resumable."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from memo_tta.cli.engine import choose_engine, engine_options
from memo_tta.cli.method_options import all_method_options, model_options
from memo_tta.cli.progress import progress


@click.command(
    epilog="Example: memo evaluate cifar10 --model resnet26 --methods source,tta,memo "
    "--corruptions fog,snow --severities 3,5 --limit 500 --out runs/weather"
)
@click.argument("data", nargs=-1, required=True)
@model_options
@click.option("--methods", default="source,tta,memo", show_default=True, help="Names from `memo methods`.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the run.")
@click.option("--limit", type=click.IntRange(1), help="So many points of each part, spread over the classes.")
@click.option("--corruptions", help="Comma-separated; those of DATA, or made on the fly.")
@click.option("--severities", help="Comma-separated levels, 1 to 5.")
@engine_options
@click.option("--skip-bad", is_flag=True, help="Leave out images that cannot be read, and say which.")
def evaluate(
    data: Sequence[str],
    model: str,
    weights: Path | None,
    methods: str,
    options: Sequence[str],
    config: Path | None,
    seed: int | None,
    out: Path,
    limit: int | None,
    corruptions: str | None,
    severities: str | None,
    skip_bad: bool,
    **where: Any,
) -> None:
    """Run methods over DATA and keep what each said of every point in the folder --out.

    DATA is a name from `memo datasets`, a folder with a sub-folder per class, or an .npz file. Starting
    the same command again goes on where it stopped; `memo report` shows the result.
    """
    from memo_tta.evaluation.driver import evaluate as run
    from memo_tta.evaluation.job import EvaluationJob
    from memo_tta.methods import METHODS

    names = methods.split(",")
    job = EvaluationJob(
        data=data,
        model=model,
        weights=None if weights is None else str(weights.resolve()),
        methods=names,
        options=all_method_options(names, list(METHODS), config, options),
        corruptions=corruptions.split(",") if corruptions else None,
        severities=levels(severities) if severities else None,
        limit=limit,
        seed=seed or 0,
        skip_bad=skip_bad,
    )
    with choose_engine(**where) as engine, progress("records") as update:

        def report(done: int, total: int, errors: dict[str, tuple[int, int]]) -> None:
            shown = (f"{name} {wrong / answers:.1%}" for name, (wrong, answers) in errors.items() if answers)
            update(done, total, " · ".join(shown))

        missing = run(job, out, engine, report)
    if missing:
        one = missing[0]
        part = " ".join(filter(None, (one.dataset, one.corruption, str(one.severity or ""))))
        click.echo(
            f"{out}: {len(missing)} records set aside, the first at {part} {one.sample} ({one.method}, "
            f"{one.reason}); the same command tries again",
            err=True,
        )
    click.echo(f"{out}: done; see it with `memo report {out}`")


def levels(text: str) -> list[int]:
    if not all(level.isdecimal() for level in text.split(",")):
        raise click.UsageError(f"--severities: expected levels like 3,5, got {text!r}")
    return [int(level) for level in text.split(",")]
