"""The records of a run on disk: whatever is said to be stored survives the death of the process."""

import fcntl
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from memo_tta.errors import ConfigError, DataError
from memo_tta.evaluation.record import Record
from memo_tta.evaluation.runner import SetAside, Skipped

FILE, LOCK = "records.sqlite", "lock"
COLUMNS = tuple(field.name for field in fields(Record))
Row = Record | Skipped | SetAside
# What each table holds, and what there is at most one row of.
TABLES: dict[str, tuple[type[Row], str]] = {
    "records": (Record, "dataset, corruption, severity, method, place"),
    "skipped": (Skipped, "dataset, corruption, severity, place"),
    "set_aside": (SetAside, "dataset, corruption, severity, method, place"),
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
    """One SQLite file; a record is stored once, however often it is added."""

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
                f"{path}: is a run of another version (its records have other columns): "
                "evaluate again with a new --out"
            )

    def close(self) -> None:
        self._connection.close()

    def add(self, results: Sequence[Row]) -> None:
        """All of them or, if the process dies meanwhile, none."""
        with self._transaction():
            for table, (kind, _) in TABLES.items():
                rows = [astuple(row) for row in results if isinstance(row, kind)]
                marks = ", ".join("?" * len(fields(kind)))
                self._connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def count(self, part: tuple[str, str, int], methods: Sequence[str], places: Sequence[int]) -> int:
        """How many of these are stored; a skipped point counts for every method."""
        where = "dataset = ? AND corruption = ? AND severity = ? AND place BETWEEN ? AND ?"
        span = (*part, places[0], places[-1])
        marks = ", ".join("?" * len(methods))
        query = f"SELECT COUNT(*) FROM records WHERE {where} AND method IN ({marks})"
        (stored,) = self._connection.execute(query, (*span, *methods)).fetchone()
        (skipped,) = self._connection.execute(f"SELECT COUNT(*) FROM skipped WHERE {where}", span).fetchone()
        return stored + len(methods) * skipped

    def errors(self) -> dict[str, tuple[int, int]]:
        """Count wrong answers and all answers of each method."""
        query = "SELECT method, SUM(prediction != label), COUNT(*) FROM records GROUP BY method"
        return {method: (wrong, total) for method, wrong, total in self._connection.execute(query)}

    def records(self) -> Iterator[Record]:
        """In the order of the data, method by method."""
        query = "SELECT * FROM records ORDER BY dataset, corruption, severity, method, place"
        for row in self._connection.execute(query):
            values = dict(zip(COLUMNS, row, strict=True))
            yield Record(**{**values, "adapted": bool(values["adapted"])})

    def skipped(self) -> list[Skipped]:
        return [Skipped(*row) for row in self._connection.execute("SELECT * FROM skipped")]

    def set_aside(self) -> list[SetAside]:
        """What the last attempt to fill the run gave up."""
        return [SetAside(*row) for row in self._connection.execute("SELECT * FROM set_aside")]

    def take_up(self) -> None:
        """What was set aside is to be tried again."""
        # Without a condition, SQLite would write to the file even if there is nothing to delete.
        self._connection.execute("DELETE FROM set_aside WHERE true")

    def facts(self) -> dict[str, Any]:
        rows = self._connection.execute("SELECT key, value FROM run")
        return {key: json.loads(value) for key, value in rows}

    def remember(self, facts: Mapping[str, Any]) -> None:
        rows = [(key, json.dumps(value)) for key, value in facts.items()]
        with self._transaction():
            self._connection.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", rows)


@contextmanager
def writing(folder: Path) -> Iterator[RecordStore]:
    """The store of a run, for one writer at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder}: another process is writing to this run: wait for it") from None
        with _opened(folder / FILE) as store:
            yield store


@contextmanager
def reading(folder: Path) -> Iterator[RecordStore]:
    """The store of a run that exists."""
    path = folder / FILE
    if not path.is_file():
        raise DataError(
            f"{folder}: no run, it has no {FILE}: make one with `memo evaluate ... --out {folder}`"
        )
    with _opened(path) as store:
        yield store


@contextmanager
def _opened(path: Path) -> Iterator[RecordStore]:
    try:
        store = RecordStore(path)
        try:
            yield store
        finally:
            store.close()
    except sqlite3.DatabaseError as error:
        if "malformed" in str(error) or "not a database" in str(error):
            raise DataError(
                f"{path}: damaged ({error}): `sqlite3 {path} .recover` saves what can be saved; "
                "a new --out starts afresh"
            ) from None
        raise DataError(f"{path}: cannot be written or read ({error})") from None


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterable[str]:
    """Which values are not what they were."""
    for key in wanted:
        if key in found and found[key] != wanted[key]:
            yield f"{key} was {found[key]!r}, now {wanted[key]!r}"
