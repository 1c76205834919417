"""Records as CSV and Parquet files: one row per point and method."""

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from memo_tta.errors import MissingExtra
from memo_tta.evaluation.store import open_for_reading
from memo_tta.files import atomic_file

TYPES = {
    "dataset": "string",
    "corruption": "string",
    "severity": "int32",
    "sample": "string",
    "method": "string",
    "label": "int32",
    "prediction": "int32",
    "score": "float64",
    "entropy_before": "float64",
    "entropy_after": "float64",
    "marginal_entropy": "float64",
    "adapted": "bool",
    "status": "string",
    "reason": "string",
    "seconds": "float64",
    "views_seconds": "float64",
    "model_seconds": "float64",
    "predict_seconds": "float64",
    "shift": "float64",
}
FIELDS = {"label": "target"}  # the record field of columns with another name, which scripts rely on
ROWS_AT_ONCE = 50_000


def columns(folders: Sequence[Path]) -> list[str]:
    """Return the column names; the first one tells several runs apart."""
    return ["run", *TYPES] if len(folders) > 1 else list(TYPES)


def write_csv(folders: Sequence[Path], path: Path) -> None:
    """Write the records of runs as CSV."""
    with atomic_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns(folders))
        writer.writerows(_rows(folders))


def write_parquet(folders: Sequence[Path], path: Path) -> None:
    """Write the records of runs as Parquet."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError:
        raise MissingExtra("pyarrow is not installed: pip install 'memo-tta[report]'") from None
    names = columns(folders)
    schema = pyarrow.schema([(name, TYPES.get(name, "string")) for name in names])
    records = _rows(folders)
    with atomic_file(path) as part, ParquetWriter(part, schema) as writer:
        while rows := list(islice(records, ROWS_AT_ONCE)):
            arrays = [
                pyarrow.array(column, type_)
                for column, type_ in zip(zip(*rows, strict=True), schema.types, strict=True)
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


def _rows(folders: Sequence[Path]) -> Iterator[list[Any]]:
    for folder in folders:
        run = [str(folder)] if len(folders) > 1 else []
        with open_for_reading(folder) as store:
            for record in store.records():
                yield run + [getattr(record, FIELDS.get(name, name)) for name in TYPES]
