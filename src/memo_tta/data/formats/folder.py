"""Image files in a folder with one sub-folder per class."""

import os
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
    """Image files below a folder, or anywhere else by absolute names, each read on access."""

    root: Path
    names: Sequence[str]  # relative to the root

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, position: int) -> np.ndarray:
        return read_image(self.root / self.names[position])


class FolderImages(FileImages):
    """Image files in one sub-folder per class."""


def open_folder(path: Path) -> Dataset:
    """Open the user's own data: every sub-folder is a class of that name."""
    labels = class_folders(path)
    names, targets = list_images(path, labels, labels.index)
    return Dataset(path.name, FolderImages(path, names), targets, labels, ids=names)


def open_corrupted_folder(path: Path, corruption: str, severity: int) -> Dataset:
    """Open one part of a folder in ImageNet-C's layout, with classes of any name."""
    part = open_folder(path / corruption / str(severity))
    return replace(part, name=path.name, corruption=corruption, severity=severity, cropped=True)


def class_folders(path: Path) -> list[str]:
    """Return the names of the sub-folders, sorted."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    with os.scandir(path) as entries:
        names = {entry.name: entry.is_dir() for entry in entries if entry.name[0] != "."}
    labels = sorted(name for name, is_folder in names.items() if is_folder)
    if not labels:
        images = sum(map(is_image_name, names))
        raise DataError(
            f"{path}: expected one sub-folder per class, found none"
            + (f" but {images} images: put those of each class in a folder named after it" if images else "")
        )
    return labels


def list_images(
    path: Path, folders: Sequence[str], index: Callable[[str], int]
) -> tuple[list[str], np.ndarray]:
    """Return the image files in the folders, sorted, and the class index of each."""
    names: list[str] = []
    counts: list[int] = []
    for folder in folders:
        with os.scandir(path / folder) as entries:
            found = sorted(f"{folder}/{entry.name}" for entry in entries if is_image_name(entry.name))
        if not found:
            raise DataError(f"{path / folder}: the class has no images: add some, or remove the folder")
        names += found
        counts.append(len(found))
    return names, np.repeat([index(folder) for folder in folders], counts)


def is_image_name(name: str) -> bool:
    """Return whether a file of this name, without folders, is a visible image."""
    return name[0] != "." and os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122 (100,000 names)
