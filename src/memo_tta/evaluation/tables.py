"""The tables of a run's database; every row ends with a checksum of its table's name and its values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import NoneType
from typing import Any, get_type_hints
from zlib import crc32

from memo_tta.evaluation.records import FailedRecord, Record, SkippedPoint

RunRow = Record | SkippedPoint | FailedRecord
StoredRow = tuple[Any, ...]  # as SQLite returns it

# Types as which SQLite returns the values of a field; it stores a NaN as NULL.
STORED_TYPES: Mapping[Any, tuple[type, ...]] = {
    str: (str,),
    str | None: (str, NoneType),
    int: (int,),
    bool: (int,),
    float: (float, int, NoneType),
    float | None: (float, int, NoneType),
}


@dataclass(frozen=True, eq=False)
class StoredTable:
    """A table in which a row is written once and never changed, so that any intact copy of it is right."""

    name: str
    types: Mapping[str, Any]  # by column, without the checksum
    key: Sequence[str]

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns in the order of the schema."""
        return [*self.types, "checksum"]

    @property
    def schema(self) -> str:
        """The statement that creates the table."""
        columns, key = ", ".join(self.columns), ", ".join(self.key)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID;"

    @property
    def columns_on_disk(self) -> list[str]:
        """Names of the columns in the order of the file: those of the key come first."""
        return [*self.key, *(name for name in self.columns if name not in self.key)]

    def stored(self, values: Sequence[Any]) -> StoredRow:
        """Return the values as SQLite will return them, and their checksum."""
        plain = [_as_stored(value) for value in values]
        return (*plain, self._checksum(plain))

    def is_intact(self, row: StoredRow) -> bool:
        """Return whether the row is one that was stored in this table."""
        return (
            len(row) == len(self.columns)
            and row[-1] == self._checksum(row[:-1])
            and all(type(v) in STORED_TYPES[t] for v, t in zip(row[:-1], self.types.values(), strict=True))
        )

    def _checksum(self, values: Sequence[Any]) -> int:
        return crc32(json.dumps([self.name, *values], default=repr).encode())


def _as_stored(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return None if value != value else value  # only a NaN differs from itself


def _row_table(name: str, kind: type[RunRow], *key: str) -> StoredTable:
    hints = get_type_hints(kind)
    return StoredTable(name, {field.name: hints[field.name] for field in fields(kind)}, key)


PART = ("dataset", "corruption", "severity")
RECORDS = _row_table("records", Record, *PART, "method", "position")
SKIPPED = _row_table("skipped", SkippedPoint, *PART, "position")
FAILED = _row_table("failed_records", FailedRecord, *PART, "method", "position")
METADATA = StoredTable("run", {"key": str, "value": str}, ("key",))
TABLES = (METADATA, RECORDS, SKIPPED, FAILED)
ROW_TABLES: Mapping[type[RunRow], StoredTable] = {
    Record: RECORDS,
    SkippedPoint: SKIPPED,
    FailedRecord: FAILED,
}


def as_record(row: StoredRow) -> Record:
    """Return the record of a stored row."""
    values: dict[str, Any] = dict(zip(RECORDS.types, row, strict=False))  # without the checksum
    values["adapted"] = bool(values["adapted"])  # SQLite stores an integer
    return Record(**values)
