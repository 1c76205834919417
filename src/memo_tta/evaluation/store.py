"""The records of a run on disk; a stored record survives the death of the process."""

import fcntl
import json
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from memo_tta.errors import ConfigError, DataError
from memo_tta.evaluation.records import FailedRecord, Record, SkippedPoint

FILE, LOCK = "records.sqlite", "lock"
COLUMNS = tuple(field.name for field in fields(Record))
RunRow = Record | SkippedPoint | FailedRecord
# The row type of each table, and its primary key.
TABLES: dict[str, tuple[type[RunRow], str]] = {
    "records": (Record, "dataset, corruption, severity, method, position"),
    "skipped": (SkippedPoint, "dataset, corruption, severity, position"),
    "failed_records": (FailedRecord, "dataset, corruption, severity, method, position"),
}
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    + "".join(
        f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(field.name for field in fields(kind))}, "
        f"PRIMARY KEY ({key})) WITHOUT ROWID;"
        for table, (kind, key) in TABLES.items()
    )
)


class RecordStore:
    """A SQLite file in which each record is stored once, however often it is added."""

    def __init__(self, path: Path):
        self.path = path
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(SCHEMA)
        stored = [row[1] for row in self._connection.execute("PRAGMA table_info(records)")]
        if stored != list(COLUMNS):
            self.close()
            raise DataError(
                f"{path}: was written by another version (its records have other columns): "
                "evaluate again with a new --out"
            )

    def close(self) -> None:
        self._connection.close()

    def add(self, rows: Sequence[RunRow]) -> None:
        """Store all rows or, if the process dies meanwhile, none of them."""
        with self._transaction():
            for table, (kind, _) in TABLES.items():
                values = [astuple(row) for row in rows if isinstance(row, kind)]
                marks = ", ".join("?" * len(fields(kind)))
                self._connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def count(self, part: tuple[str, str, int], methods: Sequence[str], positions: Sequence[int]) -> int:
        """Count the stored records in a range of positions; a skipped point counts for every method."""
        where = "dataset = ? AND corruption = ? AND severity = ? AND position BETWEEN ? AND ?"
        span = (*part, positions[0], positions[-1])
        marks = ", ".join("?" * len(methods))
        query = f"SELECT COUNT(*) FROM records WHERE {where} AND method IN ({marks})"
        (stored,) = self._connection.execute(query, (*span, *methods)).fetchone()
        (skipped,) = self._connection.execute(f"SELECT COUNT(*) FROM skipped WHERE {where}", span).fetchone()
        return stored + len(methods) * skipped

    def errors(self) -> dict[str, tuple[int, int]]:
        """Return (wrong, all) predictions of each method."""
        query = "SELECT method, SUM(prediction != target), COUNT(*) FROM records GROUP BY method"
        return {method: (wrong, total) for method, wrong, total in self._connection.execute(query)}

    def records(self) -> Iterator[Record]:
        """Yield the records in the order of the data, method by method."""
        query = "SELECT * FROM records ORDER BY dataset, corruption, severity, method, position"
        for row in self._connection.execute(query):
            values: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
            values["adapted"] = bool(values["adapted"])  # SQLite stores an integer
            yield Record(**values)

    def skipped(self) -> list[SkippedPoint]:
        return [SkippedPoint(*row) for row in self._connection.execute("SELECT * FROM skipped")]

    def failed_records(self) -> list[FailedRecord]:
        """Return the records that the last attempt could not compute."""
        return [FailedRecord(*row) for row in self._connection.execute("SELECT * FROM failed_records")]

    def clear_failed(self) -> None:
        """Forget earlier failures, so that they are tried again."""
        # Without a condition, SQLite would write to the file even if there is nothing to delete.
        self._connection.execute("DELETE FROM failed_records WHERE true")

    def metadata(self) -> dict[str, Any]:
        """Return what is known about the run besides its records."""
        rows = self._connection.execute("SELECT key, value FROM run")
        return {key: json.loads(value) for key, value in rows}

    def save_metadata(self, metadata: Mapping[str, Any]) -> None:
        rows = [(key, json.dumps(value)) for key, value in metadata.items()]
        with self._transaction():
            self._connection.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", rows)


@contextmanager
def open_for_writing(folder: Path) -> Generator[RecordStore]:
    """Open the store of a run, creating it if needed, for one writer at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder}: another process is writing to this run: wait for it") from None
        with _opened(folder / FILE) as store:
            yield store


@contextmanager
def open_for_reading(folder: Path) -> Generator[RecordStore]:
    """Open the store of an existing run."""
    path = folder / FILE
    if not path.is_file():
        raise DataError(
            f"{folder}: is not a run, it has no {FILE}: create one with `memo evaluate ... --out {folder}`"
        )
    with _opened(path) as store:
        yield store


@contextmanager
def _opened(path: Path) -> Generator[RecordStore]:
    try:
        store = RecordStore(path)
        try:
            yield store
        finally:
            store.close()
    except sqlite3.DatabaseError as error:
        if "malformed" in str(error) or "not a database" in str(error):
            raise DataError(
                f"{path}: damaged ({error}): `sqlite3 {path} .recover` may rescue its records; "
                "a new --out starts over"
            ) from None
        raise DataError(f"{path}: cannot be written or read ({error})") from None
