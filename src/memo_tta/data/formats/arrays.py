"""Images in .npy and .npz files: memory-mapped, and checked before use."""

import zipfile
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.errors import DataError

LOCAL_HEADER = 30  # bytes of a zip member's local header before its name


def open_npz(path: Path) -> Dataset:
    """Open a file with `x`, uint8 (n, height, width, 3), and `y`, class indices."""
    try:
        with zipfile.ZipFile(path) as archive:
            missing = {"x.npy", "y.npy"} - set(archive.namelist())
            if missing:
                raise DataError(f"{path}: expected arrays x and y, found no {min(missing)[0]}")
            x, y = (_map_member(archive, path, f"{name}.npy") for name in "xy")
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: cannot be read as .npz ({error})") from None
    check_images(path, x)
    y = check_targets(path, y, rows=len(x))
    return Dataset(path.stem, x, y, [str(index) for index in range(int(y.max()) + 1)])


def _map_member(archive: zipfile.ZipFile, path: Path, name: str) -> np.ndarray:
    """Memory-map an array of the archive; a compressed one is first unpacked to a temporary file."""
    info = archive.getinfo(name)
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(LOCAL_HEADER)
            name_length, extra_length = np.frombuffer(header[26:30], "<u2")
            file.seek(int(name_length) + int(extra_length), 1)
            return _map_array(file, name)
    with archive.open(name) as member, TemporaryFile() as file:
        while chunk := member.read(1 << 20):
            file.write(chunk)
        file.seek(0)
        return _map_array(file, name)


def _map_array(file: IO[bytes], name: str) -> np.ndarray:
    """Memory-map the .npy content that begins at the current position of the file."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    if dtype.hasobject:
        raise DataError(f"{name}: expected numbers, found Python objects")
    return np.memmap(file, dtype, "r", file.tell(), shape, "F" if is_fortran else "C")


def open_npy(path: Path, how_to_get: str) -> np.ndarray:
    """Memory-map a .npy file; if it is missing, the error tells how to get it."""
    if not path.is_file():
        raise DataError(f"{path}: no such file: {how_to_get}")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: not a complete .npy file ({error})") from None


def check_images(path: Path, x: np.ndarray, rows: int | None = None, side: int | None = None) -> None:
    """Raise unless x is uint8 (rows, side, side, 3); None allows any number."""
    shape = ["n" if expected is None else expected for expected in (rows, side, side, 3)]
    fits = x.ndim == 4 and all(e in ("n", found) for e, found in zip(shape, x.shape, strict=True))
    if x.dtype != np.uint8 or not fits or len(x) == 0:
        expected = ", ".join(map(str, shape))
        raise DataError(f"{path}: expected uint8 of shape ({expected}), found {x.dtype} of shape {x.shape}")


def check_targets(path: Path, y: np.ndarray, rows: int, classes: int | None = None) -> np.ndarray:
    """Return the targets as int64; raise unless there are `rows` of them, each a class index."""
    if y.shape != (rows,) or not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{path}: expected {rows} integer labels, found {y.dtype} of shape {y.shape}")
    largest = y.max() if classes is None else classes - 1
    if y.min() < 0 or y.max() > largest:
        raise DataError(f"{path}: expected labels 0..{largest}, found {y.min()}..{y.max()}")
    return np.asarray(y, np.int64)
