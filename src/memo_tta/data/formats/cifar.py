"""The published files of CIFAR-10, CIFAR-10.1 and CIFAR-10-C."""

import json
from pathlib import Path
from typing import Any

from memo_tta.archives import damage_raises
from memo_tta.class_lists import class_list
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.arrays import check_images, check_targets, open_npy
from memo_tta.errors import DataError

SIDE = 32
N_SEVERITIES = 5
METADATA_FILE = "corrupt.json"  # written by `memo corrupt`
MAX_METADATA = 1 << 22  # bytes; a thousand classes take 30,000


def open_cifar10(folder: Path, split: str = "test") -> Dataset:
    """Open CIFAR-10 (Krizhevsky, 2009), as `memo data get` unpacks it."""
    how_to_get = "get it with `memo data get cifar10`"
    return _open("cifar10", folder / f"{split}_x.npy", folder / f"{split}_y.npy", how_to_get)


def open_cifar101(folder: Path, version: str, rows: int) -> Dataset:
    """Open CIFAR-10.1 (Recht et al., 2018): new test images, collected in the same way."""
    images, targets = (folder / f"cifar10.1_{version}_{kind}.npy" for kind in ("data", "labels"))
    return _open("cifar10.1", images, targets, "get it with `memo data get cifar10.1`", rows)


def _open(name: str, images: Path, targets: Path, how_to_get: str, rows: int | None = None) -> Dataset:
    x = open_npy(images, how_to_get)
    check_images(images, x, rows, SIDE)
    y = check_targets(targets, open_npy(targets, how_to_get), len(x), classes=10)
    return Dataset(name, x, y, class_list("cifar10"))


def open_cifar10c(folder: Path, corruption: str, severity: int, rows: int | None = None) -> Dataset:
    """Open one part of a data set in CIFAR-10-C's layout: five severities of `rows` images in one array."""
    how_to_get = "get it with `memo data get cifar10-c`, or make it with `memo corrupt`"
    images, targets = folder / f"{corruption}.npy", folder / "labels.npy"
    y = open_npy(targets, how_to_get)
    if rows is None:
        rows = y.size // N_SEVERITIES
    x = open_npy(images, how_to_get)
    check_images(images, x, N_SEVERITIES * rows)
    metadata = folder / METADATA_FILE
    name, labels = "cifar10-c", class_list("cifar10")
    if metadata.is_file():
        content = read_metadata(metadata)
        name, labels = content["dataset"], content["labels"]
    y = check_targets(targets, y, N_SEVERITIES * rows, len(labels))
    part = slice((severity - 1) * rows, severity * rows)
    return Dataset(name, x[part], y[part], labels, corruption=corruption, severity=severity)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what `memo corrupt` wrote about a data set: among others, its name and its labels."""
    with damage_raises(DataError, f"{path}: not written by `memo corrupt`"):
        with path.open("rb") as file:
            text = file.read(MAX_METADATA + 1)
        if len(text) > MAX_METADATA:
            raise ValueError(f"more than {MAX_METADATA} bytes")
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError(f"expected a JSON object, got {type(content).__name__}")
        labels, name = content.get("labels"), content.get("dataset")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError("labels: expected a list of strings")
        if not isinstance(name, str):
            raise ValueError(f"dataset: expected a string, got {type(name).__name__}")
    return content
