"""Images in .npy and .npz files: memory-mapped, and checked before use."""

import math
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from memo_tta.archives import ArrayHeader, chunks, damage_raises, open_zip, read_array_header
from memo_tta.data.dataset import Dataset
from memo_tta.errors import DataError

LOCAL_HEADER = 30  # bytes of a zip member's local header before its name
MAX_CLASSES = 100_000


def open_npz(path: Path) -> Dataset:
    """Open a file with `x`, uint8 (n, height, width, 3), and `y`, class indices."""
    with damage_raises(DataError, f"{path}: cannot be read as .npz"), open_zip(path, math.inf) as archive:
        missing = {"x.npy", "y.npy"} - set(archive.namelist())
        if missing:
            raise DataError(f"{path}: expected arrays x and y, found no {min(missing)[0]}")
        headers = {name: _read_header(archive, f"{name}.npy") for name in "xy"}
        check_images(path, headers["x"])
        check_targets_form(path, headers["y"], rows=headers["x"].shape[0])
        x, y = (_map_member(archive, path, f"{name}.npy", header) for name, header in headers.items())
    y = check_targets(path, y, rows=len(x))
    return Dataset(path.stem, x, y, [str(index) for index in range(int(y.max()) + 1)])


def _read_header(archive: zipfile.ZipFile, name: str) -> ArrayHeader:
    with archive.open(name) as member:
        return read_array_header(member, archive.getinfo(name).file_size)


def _map_member(archive: zipfile.ZipFile, path: Path, name: str, header: ArrayHeader) -> np.ndarray:
    """Memory-map an array of the archive; a compressed one is first unpacked to a temporary file.

    The whole member is read once, because its checksum is the only sign of damaged pixels.
    """
    info = archive.getinfo(name)
    if info.compress_type == zipfile.ZIP_STORED:
        with archive.open(info) as member:
            for _ in chunks(member):
                pass
        with path.open("rb") as file:
            file.seek(info.header_offset)
            start = file.read(LOCAL_HEADER)
            name_length, extra_length = np.frombuffer(start[26:30], "<u2")
            return _map_array(file, file.tell() + int(name_length) + int(extra_length), header)
    _check_disk(path, info)
    with archive.open(info) as member, tempfile.TemporaryFile() as file:
        file.writelines(chunks(member))
        file.flush()
        return _map_array(file, 0, header)


def _check_disk(path: Path, info: zipfile.ZipInfo) -> None:
    """Raise if the member would take more than half of what is free for temporary files."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if info.file_size > free // 2:
        raise DataError(
            f"{path}: {info.filename} unpacks to {info.file_size} bytes, expected at most half of the {free} "
            f"that are free in {folder}: save the arrays with np.savez, which need not be unpacked"
        )


def _map_array(file: IO[bytes], start: int, header: ArrayHeader) -> np.ndarray:
    """Memory-map the .npy content that begins at this position of the file."""
    order = "F" if header.is_fortran else "C"
    return np.memmap(file, header.dtype, "r", start + header.length, header.shape, order)


def open_npy(path: Path, how_to_get: str) -> np.ndarray:
    """Memory-map a .npy file; if it is missing, the error tells how to get it."""
    if not path.is_file():
        raise DataError(f"{path}: no such file: {how_to_get}")
    with damage_raises(DataError, f"{path}: not a complete .npy file"), path.open("rb") as file:
        return _map_array(file, 0, read_array_header(file, path.stat().st_size))


class ArrayForm(Protocol):
    """Shape and type of an array; its values may not have been read yet."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...


def check_images(path: Path, x: ArrayForm, rows: int | None = None, side: int | None = None) -> None:
    """Raise unless x is uint8 (rows, side, side, 3); None allows any number."""
    shape = ["n" if expected is None else expected for expected in (rows, side, side, 3)]
    fits = len(x.shape) == 4 and all(e in ("n", found) for e, found in zip(shape, x.shape, strict=True))
    if x.dtype != np.uint8 or not fits or x.shape[0] == 0:
        expected = ", ".join(map(str, shape))
        raise DataError(f"{path}: expected uint8 of shape ({expected}), found {x.dtype} of shape {x.shape}")


def check_targets_form(path: Path, y: ArrayForm, rows: int) -> None:
    """Raise unless y has one integer for each of the rows."""
    if y.shape != (rows,) or not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{path}: expected {rows} integer labels, found {y.dtype} of shape {y.shape}")


def check_targets(path: Path, y: np.ndarray, rows: int, classes: int | None = None) -> np.ndarray:
    """Return the targets as int64; raise unless there are `rows` of them, each a class index."""
    check_targets_form(path, y, rows)
    largest = min(int(y.max()), MAX_CLASSES - 1) if classes is None else classes - 1
    if y.min() < 0 or y.max() > largest:
        raise DataError(f"{path}: expected labels 0..{largest}, found {y.min()}..{y.max()}")
    return np.asarray(y, np.int64)
