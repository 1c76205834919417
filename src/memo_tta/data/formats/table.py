"""A CSV or Parquet file with one image per row: its path and its label."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from memo_tta.archives import damage_raises
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.folder import FileImages, is_image_name
from memo_tta.data.formats.label_values import LABEL_NAMES, classes_of
from memo_tta.errors import DataError, MissingExtra

PATH_NAMES = ("path", "file", "filename", "image")


class PathTable(NamedTuple):
    """The two columns of a table that matter."""

    paths: list[object]
    labels: list[object]


def open_csv(path: Path) -> Dataset:
    """Open a CSV file whose first line names its columns."""
    with (
        damage_raises(DataError, f"{path}: cannot be read as CSV"),
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        reader = csv.reader(file, skipinitialspace=True, strict=True)
        header = next(reader, [])
        columns = [header.index(name) for name in _find_columns(path, header)]
        table = PathTable([], [])
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{path}: line {reader.line_num}: expected {len(header)} values, found {len(row)}"
                )
            for values, column in zip(table, columns, strict=True):
                values.append(row[column])
    return _open_files(path, table)


def open_parquet(path: Path) -> Dataset:
    """Open a Parquet file of paths and labels."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("pyarrow is not installed: pip install 'memo-tta[data]'") from None
    with damage_raises(DataError, f"{path}: cannot be read as Parquet"):
        names = _find_columns(path, parquet.read_schema(path).names)
        columns = parquet.read_table(path, columns=names)
        table = PathTable(*(columns[name].to_pylist() for name in names))
    return _open_files(path, table)


def _find_columns(path: Path, columns: Sequence[str]) -> list[str]:
    """Return the names of the columns with paths and with labels."""
    found: list[str] = []
    for content, known in (("paths", PATH_NAMES), ("labels", LABEL_NAMES)):
        matching = [column for column in columns if column.strip().lower() in known]
        if len(matching) != 1:
            raise DataError(
                f"{path}: expected one column of {content}, named {', '.join(known[:-1])} or {known[-1]}, "
                f"found {len(matching)} among its columns {', '.join(map(repr, columns)) or '(none)'}"
            )
        found += matching
    return found


def _open_files(path: Path, table: PathTable) -> Dataset:
    """Return the data set of the files, whose paths are relative to the table's folder."""
    if not table.paths:
        raise DataError(f"{path}: the table has no rows, expected one per image")
    names = [_checked(path, row, name) for row, name in enumerate(table.paths, start=1)]
    labels, targets = classes_of(str(path), table.labels, names)
    return Dataset(path.stem, FileImages(path.parent, names), targets, labels, ids=names)


def _checked(path: Path, row: int, name: object) -> str:
    """Return the path of an image; raise unless there is a file of an image's name."""
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"{path}: row {row}: expected a path, got {_kind(name)}")
    file = path.parent / name
    if not is_image_name(file.name):
        raise DataError(f"{path}: {name}: expected the name of an image file, like a.jpg")
    if not file.is_file():
        raise DataError(f"{path}: {file}: no such file; paths are relative to the table's folder")
    return name


def _kind(name: object) -> str:
    return repr(name) if isinstance(name, str) or name is None else type(name).__name__
