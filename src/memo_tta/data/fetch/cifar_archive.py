"""CIFAR-10 (Krizhevsky, 2009): from either of its archives to the same four arrays."""

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
    """Write train_x, train_y, test_x and test_y as .npy files; the folder appears whole."""
    arrays = read_archive(archive)
    with atomic_folder(folder) as part:
        for name in ARRAYS:
            np.save(part / f"{name}.npy", arrays[name])


def read_archive(archive: Path) -> Arrays:
    """Images uint8 (n, 32, 32, 3) and labels uint8 (n,) of an archive of either format."""
    try:
        with tarfile.open(archive) as tar:
            files = {Path(member.name).name: member for member in tar if member.isfile()}

            def read(name: str) -> bytes:
                if name not in files:
                    raise DataError(f"{archive}: no archive of CIFAR-10, it has no {name}")
                file = tar.extractfile(files[name])
                return b"" if file is None else file.read()

            return (_from_pictures if "test_batch.png" in files else _from_pickles)(read)
    except FileNotFoundError:
        raise DataError(f"{archive}: no such file") from None
    except (tarfile.TarError, EOFError, OSError, KeyError, ValueError, pickle.UnpicklingError) as error:
        raise DataError(f"{archive}: damaged, or no archive of CIFAR-10 ({error})") from None


def _from_pickles(read: Callable[[str], bytes]) -> Arrays:
    """The official python version: rows of 3072 bytes, channel by channel."""

    def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
        content = ArraysOnly(io.BytesIO(read(name)), encoding="bytes").load()
        planes = np.asarray(content[b"data"], np.uint8).reshape(-1, 3, SIDE, SIDE)
        return planes.transpose(0, 2, 3, 1), np.asarray(content[b"labels"], np.uint8)

    train = [batch(name) for name in TRAIN_BATCHES]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return _checked(train_x, train_y, *batch("test_batch"))


def _from_pictures(read: Callable[[str], bytes]) -> Arrays:
    """The npm version: one image a row, 1024 pixels wide, labels as JSON lists."""

    def batch(name: str) -> np.ndarray:
        picture = Image.open(io.BytesIO(read(f"{name}.png")))
        return np.asarray(picture.convert("RGB")).reshape(-1, SIDE, SIDE, 3)

    def labels(name: str) -> np.ndarray:
        return np.asarray(json.loads(read(name)), np.uint8)

    train_x = np.concatenate([batch(name) for name in TRAIN_BATCHES])
    return _checked(train_x, labels("train_lables.json"), batch("test_batch"), labels("test_lables.json"))


def _checked(train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> Arrays:
    for name, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y) or len(x) == 0:
            raise DataError(f"CIFAR-10: {len(x)} {name} images but {len(y)} labels")
        if y.max() >= CLASSES:
            raise DataError(f"CIFAR-10: a {name} label is {y.max()}, expected 0..9")
    return dict(zip(ARRAYS, map(np.ascontiguousarray, (train_x, train_y, test_x, test_y)), strict=True))


class ArraysOnly(pickle.Unpickler):
    """Reads pickled numpy arrays, lists and strings, and refuses everything that would run code."""

    ALLOWED = frozenset({"_reconstruct", "ndarray", "dtype", "encode"})
    MODULES = frozenset({"numpy.core.multiarray", "numpy._core.multiarray", "numpy", "_codecs"})

    def find_class(self, module: str, name: str) -> Any:
        if module in self.MODULES and name in self.ALLOWED:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not data")
