"""CIFAR-10 and its shifted relatives, as they are published."""

import json
from pathlib import Path

from memo_tta.class_lists import class_list
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.arrays import check_images, check_labels, open_npy
from memo_tta.errors import DataError

SIDE = 32
LEVELS = 5
FACTS = "corrupt.json"  # what `memo corrupt` says of a set it made


def open_cifar10(folder: Path, split: str = "test") -> Dataset:
    """CIFAR-10 (Krizhevsky, 2009), as `memo data get` unpacks it."""
    get = "get it with `memo data get cifar10`"
    return _open("cifar10", folder / f"{split}_x.npy", folder / f"{split}_y.npy", get)


def open_cifar101(folder: Path, version: str, rows: int) -> Dataset:
    """CIFAR-10.1 (Recht et al., 2018): new test images, collected like the old ones."""
    images, labels = (folder / f"cifar10.1_{version}_{part}.npy" for part in ("data", "labels"))
    return _open("cifar10.1", images, labels, "get it with `memo data get cifar10.1`", rows)


def _open(name: str, images: Path, labels: Path, get: str, rows: int | None = None) -> Dataset:
    x = open_npy(images, get)
    check_images(images, x, rows, SIDE)
    y = check_labels(labels, open_npy(labels, get), len(x), classes=10)
    return Dataset(name, x, y, class_list("cifar10"))


def open_cifar10c(folder: Path, corruption: str, severity: int, rows: int | None = None) -> Dataset:
    """One part of a set in the layout of CIFAR-10-C: five levels of `rows` images, one after the other."""
    get = "get it with `memo data get cifar10-c`, or make it with `memo corrupt`"
    images, labels = folder / f"{corruption}.npy", folder / "labels.npy"
    y = open_npy(labels, get)
    if rows is None:
        rows = len(y) // LEVELS
    x = open_npy(images, get)
    check_images(images, x, LEVELS * rows)
    facts = folder / FACTS
    name, names = "cifar10-c", class_list("cifar10")
    if facts.is_file():
        try:
            content = json.loads(facts.read_text("utf-8"))
            name, names = content["dataset"], content["labels"]
        except (ValueError, KeyError) as error:
            raise DataError(f"{facts}: not written by `memo corrupt` ({error})") from None
    y = check_labels(labels, y, LEVELS * rows, len(names))
    part = slice((severity - 1) * rows, severity * rows)
    return Dataset(name, x[part], y[part], names, corruption=corruption, severity=severity)
