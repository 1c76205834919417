"""`memo corrupt`: write CIFAR-10-C or ImageNet-C style copies of clean data."""

from pathlib import Path
from typing import Any

import click

from memo_tta.cli.engine import choose_engine, engine_options
from memo_tta.cli.evaluate import SOME_LEFT_OUT
from memo_tta.progress import progress


@click.command(epilog="Example: memo corrupt cifar10 --out cifar10-c --corruptions fog,snow")
@click.argument("data")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the copies.")
@click.option("--corruptions", help="Comma-separated names [default: all 19].")
@click.option("--seed", default=0, show_default=True, help="Seed of the random numbers.")
@engine_options
@click.option("--skip-bad", is_flag=True, help="Skip unreadable images, and list them at the end.")
@click.pass_context
def corrupt(
    ctx: click.Context,
    data: str,
    out: Path,
    corruptions: str | None,
    seed: int,
    skip_bad: bool,
    **engine_choice: Any,
) -> None:
    """Write corrupted copies of DATA, at five severity levels per corruption.

    DATA is clean data in any form that `memo evaluate` takes. An array data set becomes one .npy file per
    corruption, as in CIFAR-10-C; images become CORRUPTION/SEVERITY/CLASS/NAME.JPEG, as in ImageNet-C. The
    same seed gives the same files, with any number of workers. Run the same command again to resume it. The
    exit code is 3 if images were skipped.
    """
    from memo_tta.data.corruptions.generate import CorruptionJob, generate
    from memo_tta.data.corruptions.severity import CORRUPTIONS, check_corruptions
    from memo_tta.files import check_output_folder

    check_output_folder(out)
    names = list(CORRUPTIONS) if corruptions is None else corruptions.split(",")
    check_corruptions(names)
    with choose_engine(**engine_choice) as engine, progress("images") as update:
        skipped = generate(CorruptionJob(data, out, names, seed, skip_bad), engine, update)
    for reason in skipped:
        click.echo(f"skipped {reason}", err=True)
    count = f", {len(skipped)} images skipped" if skipped else ""
    click.echo(f"{out}: {len(names)} corruptions at five severity levels{count}")
    ctx.exit(SOME_LEFT_OUT if skipped else 0)
