"""`memo data get`: a data set on disk, verified."""

from pathlib import Path

import click

from memo_tta.cli.progress import progress

MEGABYTE = 1_000_000


@click.group()
def data() -> None:
    """Get data sets. They go to $MEMO_DATA, by default ~/.cache/memo-tta.

    \b
    Example: memo data get cifar10
    """


@data.command(epilog="Example: memo data get cifar10 --from cifar-10-python.tar.gz")
@click.argument("name")
@click.option(
    "--from", "archive", type=click.Path(path_type=Path), help="Use this archive, download nothing."
)
def get(name: str, archive: Path | None) -> None:
    """Download, verify and unpack the data set NAME; `memo datasets` lists them.

    A download that was cut off goes on where it stopped. Nothing is used before its checksum is right.
    """
    from memo_tta.data.dataset import data_folder
    from memo_tta.data.sources import FETCHERS, is_present

    fetch = FETCHERS[name]
    folder = data_folder() / name
    if is_present(name):
        click.echo(f"{name}: already in {folder} (delete that folder to get it anew)")
        return
    with progress("MB") as update:
        fetch(archive, lambda have, total: update(have // MEGABYTE, (total or have) // MEGABYTE))
    click.echo(f"{name}: {folder}")
