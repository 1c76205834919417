"""Choose the reader of data that the user names by path, by what is there."""

from pathlib import Path

from memo_tta.data.corruptions.severity import NAMED, SEVERITIES
from memo_tta.data.entry import CatalogEntry, OpenClean
from memo_tta.data.formats import cifar, folder, imagenet, table, tar_shards
from memo_tta.data.formats.arrays import open_npz
from memo_tta.data.formats.hub import open_hub
from memo_tta.data.formats.hub_rows import HubSpec, is_saved
from memo_tta.errors import DataError

READERS: dict[str, OpenClean] = {
    ".npz": open_npz,
    ".csv": table.open_csv,
    ".parquet": table.open_parquet,
    ".tar": tar_shards.open_shards,
}


def find_reader(path: Path) -> CatalogEntry | None:
    """Return how to read what is at the path, or at all paths of a pattern; None if there is nothing."""
    if path.is_dir():
        return _folder_reader(path)
    is_pattern = path.suffix == ".tar" and any(mark in str(path) for mark in "*?[{")
    if not path.exists() and not is_pattern:
        return None
    if path.suffix not in READERS:
        hint = ": unpack it to a .tar file" if path.suffix in (".gz", ".tgz", ".xz", ".bz2", ".zst") else ""
        raise DataError(f"{path}: expected a folder or a {', '.join(READERS)} file{hint}")
    return CatalogEntry("", "", open_clean=READERS[path.suffix])


def _folder_reader(path: Path) -> CatalogEntry:
    if (path / "labels.npy").is_file():
        found = [name for name in NAMED if (path / f"{name}.npy").is_file()]
        return CatalogEntry("", "", open_part=cifar.open_cifar10c, corruptions=found)
    if is_saved(path):
        return CatalogEntry("", "", open_clean=lambda saved: open_hub(HubSpec(str(saved))))
    if tar_shards.is_tar_folder(path):
        return CatalogEntry("", "", open_clean=tar_shards.open_shards)
    subfolders = folder.class_folders(path)
    if set(subfolders) <= set(NAMED) and _has_severities(path / subfolders[0]):
        inner = path / subfolders[0] / "1"
        has_wordnet_ids = inner.is_dir() and imagenet.is_imagenet(inner)
        open_part = imagenet.open_own_imagenet_c if has_wordnet_ids else folder.open_corrupted_folder
        found = [name for name in NAMED if name in subfolders]
        return CatalogEntry("", "", open_part=open_part, corruptions=found)
    open_clean = imagenet.open_imagenet if imagenet.is_imagenet(path) else folder.open_folder
    return CatalogEntry("", "", open_clean=open_clean)


def _has_severities(path: Path) -> bool:
    """Return whether the folder has a sub-folder per severity; other classes may be named after weather."""
    return any((path / str(severity)).is_dir() for severity in SEVERITIES)
