"""`memo corrupt`: CIFAR-10-C and ImageNet-C style copies of clean data."""

from pathlib import Path
from typing import Any

import click

from memo_tta.cli.engine import choose_engine, engine_options
from memo_tta.cli.progress import progress


@click.command(epilog="Example: memo corrupt cifar10 --out cifar10-c --corruptions fog,snow")
@click.argument("data")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the copies.")
@click.option("--corruptions", help="Comma-separated; all 19 unless given.")
@click.option("--seed", default=0, show_default=True)
@engine_options
@click.option("--skip-bad", is_flag=True, help="Leave out images that cannot be read, and say which.")
def corrupt(data: str, out: Path, corruptions: str | None, seed: int, skip_bad: bool, **where: Any) -> None:
    """Write corrupted copies of DATA, at five levels each.

    Arrays become one .npy file per corruption, as in CIFAR-10-C; folders of images become
    CORRUPTION/LEVEL/CLASS/NAME.JPEG, as in ImageNet-C. The same seed gives the same files, whatever the
    number of workers. Starting the same command again makes what is missing.
    """
    from memo_tta.data.corruptions.generate import CorruptionJob, generate
    from memo_tta.data.corruptions.severity import CIFAR

    chosen = list(CIFAR) if corruptions is None else corruptions.split(",")
    for name in chosen:
        _ = CIFAR[name]  # an unknown one lists the choices
    with choose_engine(**where) as engine, progress("images") as update:
        job = CorruptionJob(data, out, chosen, seed, skip_bad)
        skipped = generate(job, engine, update)
    for reason in skipped:
        click.echo(f"skipped {reason}", err=True)
    count = f", {len(skipped)} images skipped" if skipped else ""
    click.echo(f"{out}: {len(chosen)} corruptions at five levels{count}")
