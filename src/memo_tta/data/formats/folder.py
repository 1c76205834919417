"""Image files in a folder with one sub-folder per class."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.errors import DataError
from memo_tta.image import read_image

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm"})


@dataclass(frozen=True)
class FileImages:
    """Image files below a folder, each read on access."""

    root: Path
    names: Sequence[str]  # relative to the root

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, position: int) -> np.ndarray:
        return read_image(self.root / self.names[position])


def open_folder(path: Path) -> Dataset:
    """Open the user's own data: every sub-folder is a class of that name."""
    labels = class_folders(path)
    names, targets = list_images(path, labels, labels.index)
    return Dataset(path.name, FileImages(path, names), targets, labels, ids=names)


def open_corrupted_folder(path: Path, corruption: str, severity: int) -> Dataset:
    """Open one part of a folder in ImageNet-C's layout, with classes of any name."""
    part = open_folder(path / corruption / str(severity))
    return replace(part, name=path.name, corruption=corruption, severity=severity, cropped=True)


def class_folders(path: Path) -> list[str]:
    """Return the names of the sub-folders, sorted."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    labels = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and entry.name[0] != ".")
    if not labels:
        raise DataError(f"{path}: expected one sub-folder per class, found none")
    return labels


def list_images(
    path: Path, folders: Sequence[str], index: Callable[[str], int]
) -> tuple[list[str], np.ndarray]:
    """Return the image files in the folders, sorted, and the class index of each."""
    names: list[str] = []
    targets: list[int] = []
    for folder in folders:
        found = sorted(
            entry.name
            for entry in (path / folder).iterdir()
            if entry.suffix.lower() in SUFFIXES and entry.name[0] != "."
        )
        if not found:
            raise DataError(f"{path / folder}: the class has no images: add some, or remove the folder")
        names += [f"{folder}/{name}" for name in found]
        targets += [index(folder)] * len(found)
    return names, np.array(targets)
