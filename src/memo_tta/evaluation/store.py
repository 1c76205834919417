"""The records of a run on disk; a stored record survives the death of the process, and damage is noticed."""

import fcntl
import json
import shlex
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple
from functools import partial
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

from memo_tta.errors import ConfigError, DataError
from memo_tta.evaluation.json_types import fits
from memo_tta.evaluation.records import FailedRecord, Record, SkippedPoint
from memo_tta.evaluation.tables import (
    FAILED,
    METADATA,
    RECORDS,
    ROW_TABLES,
    SKIPPED,
    TABLES,
    RunRow,
    StoredRow,
    StoredTable,
    as_record,
)
from memo_tta.files import output_errors

FILE, LOG, LOCK = "records.sqlite", "records.sqlite-wal", "lock"
COLUMNS = tuple(RECORDS.types)
# One transaction: a process that is killed leaves all tables or none.
SCHEMA = f"BEGIN; {' '.join(table.schema for table in TABLES)} COMMIT;"
MAGIC, LOG_VERSIONS = b"SQLite format 3\0", b"\2\2"  # bytes 0 to 15 and 18 to 19 of every file with a log
# Errors of the machine; all others mean that the file is damaged.
MACHINE_ERRORS = {
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM),
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
}
RESUMABLE = {"job", "total", "micro_batches", "fingerprint"}  # the metadata that a resume has to know
# The values of metadata that a report or a resume relies on.
METADATA_TYPES: Mapping[str, Any] = {
    "job": Mapping[str, Any],
    "total": int,
    "micro_batches": Mapping[str, int],
    "labels": Mapping[str, Sequence[str]],
    "metric": str,
    "fingerprint": str,
    "parameters": int,
    "versions": Mapping[str, str],  # as are "versions 2" and so on
    "host": Mapping[str, Any],
    "began": str,
    "order_matters": Sequence[str],  # methods whose predictions depend on the order of the images
}


class RecordStore:
    """A SQLite file in which each record is stored once, however often it is added."""

    def __init__(self, path: Path, connection: sqlite3.Connection):
        self.path, self._connection = path, connection
        # Damaged text is read, too; its checksum tells.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        self._has_tables = self._query("SELECT name FROM sqlite_master").fetchone() is not None

    def make_writable(self) -> None:
        """Create the tables if there are none, and write so that a killed process loses nothing."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        if not self._has_tables:
            self._connection.executescript(SCHEMA)
            self._has_tables = True

    def verify(self) -> None:
        """Raise DataError unless the file's structure and every row are intact."""
        ((problem,),) = self._query("PRAGMA integrity_check(1)")
        if problem != "ok":
            raise _damaged(self.path, problem.removeprefix("*** in database main ***"))
        for table in TABLES if self._has_tables else ():
            columns = [row[1] for row in self._query(f"PRAGMA table_info({table.name})")]
            if columns != table.columns:
                raise DataError(
                    f"{self.path}: was written by another version (the table {table.name} has other columns) "
                    f"or is damaged: evaluate again with a new --out; {_salvage_hint(self.path)}"
                )
        intact = [table.is_intact(row) for table in TABLES for row in self._rows(table)]
        if not all(intact):
            raise _damaged(self.path, f"{intact.count(False)} of {len(intact)} rows cannot be trusted")

    def add(self, rows: Sequence[RunRow]) -> None:
        """Store all rows or, if the process dies meanwhile, none of them."""
        with self._transaction():
            for kind, table in ROW_TABLES.items():
                stored = [table.stored(astuple(row)) for row in rows if isinstance(row, kind)]
                self._insert("INSERT OR IGNORE", table, stored)

    def add_stored(self, rows: Mapping[StoredTable, Sequence[StoredRow]]) -> None:
        """Store rows of another run as they were stored there."""
        with self._transaction():
            for table, stored in rows.items():
                self._insert("INSERT OR IGNORE", table, stored)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _insert(self, verb: str, table: StoredTable, stored: Sequence[StoredRow]) -> None:
        marks = ", ".join("?" * len(table.columns))
        self._connection.executemany(f"{verb} INTO {table.name} VALUES ({marks})", stored)

    def positions(self, part: tuple[str, str, int], method: str) -> list[int]:
        """Return the positions of a part that have a record of the method, or were skipped."""
        where = "dataset = ? AND corruption = ? AND severity = ?"
        query = f"SELECT position FROM records WHERE {where} AND method = ?"
        query += f" UNION ALL SELECT position FROM skipped WHERE {where}"
        return [position for (position,) in self._query(query, (*part, method, *part))]

    def errors(self) -> dict[str, tuple[int, int]]:
        """Return (wrong, all) predictions of each method."""
        query = "SELECT method, SUM(prediction != target), COUNT(*) FROM records GROUP BY method"
        return {method: (wrong, total) for method, wrong, total in self._query(query)}

    def records(self) -> Iterator[Record]:
        """Yield the records in the order of the data, method by method."""
        return map(as_record, self._rows(RECORDS))

    def skipped(self) -> list[SkippedPoint]:
        return [SkippedPoint(*values) for *values, _ in self._rows(SKIPPED)]

    def failed_records(self) -> list[FailedRecord]:
        """Return the records that the last attempt could not compute."""
        return [FailedRecord(*values) for *values, _ in self._rows(FAILED)]

    def clear_failed(self) -> None:
        """Forget earlier failures, so that they are tried again."""
        # Without a condition, SQLite would write to the file even if there is nothing to delete.
        self._connection.execute("DELETE FROM failed_records WHERE true")

    def metadata(self) -> dict[str, Any]:
        """Return what is known about the run besides its records."""
        return {key: self._metadata_value(key, text) for key, text, _ in self._rows(METADATA)}

    def _metadata_value(self, key: str, text: str) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise _damaged(self.path, f"the metadata {key!r} is not JSON") from None
        if not fits(value, METADATA_TYPES.get(key.partition(" ")[0], Any)):
            raise _damaged(self.path, f"the metadata {key!r} has another type than expected")
        return value

    def save_metadata(self, metadata: Mapping[str, Any]) -> None:
        with self._transaction():
            stored = [METADATA.stored((key, json.dumps(value))) for key, value in metadata.items()]
            self._insert("INSERT OR REPLACE", METADATA, stored)

    def _rows(self, table: StoredTable) -> Iterator[StoredRow]:
        """Return the rows of a table in the order of its key."""
        if not self._has_tables:
            return iter(())
        columns, key = ", ".join(table.columns), ", ".join(table.key)
        return iter(self._query(f"SELECT {columns} FROM {table.name} ORDER BY {key}"))

    def _query(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(query, values)
        except UnicodeDecodeError:  # by the sqlite3 module, of a name in the schema
            raise _damaged(self.path, "a name in its schema is not text") from None


@contextmanager
def open_for_writing(folder: Path) -> Generator[RecordStore]:
    """Open the store of a run, creating it if needed, for one writer at a time."""
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder}: another process is writing to this run: wait for it") from None
        with _opened(folder / FILE, f"{_address(folder / FILE)}?mode=rwc") as store:
            store.make_writable()
            yield store


@contextmanager
def open_for_reading(folder: Path) -> Generator[RecordStore]:
    """Open the store of an existing run and verify all its rows; change nothing in its folder."""
    path = find_database(folder)
    with _readable_address(path) as address, _opened(path, address) as store:
        store.verify()
        yield store


def find_database(folder: Path) -> Path:
    """Return the path of a run's database; raise DataError if it is missing or cannot be read."""
    path = folder / FILE
    try:
        if not path.is_file():
            raise DataError(
                f"{folder}: is not a run, it has no {FILE}: "
                f"create one with `memo evaluate ... --out {folder}`"
            )
        with path.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): check its permissions") from None
    return path


@contextmanager
def _readable_address(path: Path) -> Generator[str]:
    """Yield an address at which SQLite reads the file and its log, and writes nothing beside them."""
    if is_being_written(path.parent):
        yield f"{_address(path)}?mode=ro"  # the writer's log stays in use
    elif _has_log(path):  # of a killed process: SQLite would write beside it to read it
        with TemporaryDirectory(prefix="memo-run-") as folder, output_errors(Path(folder)):
            for name in (FILE, LOG):
                copyfile(path.with_name(name), Path(folder, name))
            yield _address(Path(folder, FILE))
    else:
        yield f"{_address(path)}?immutable=1"


def _has_log(path: Path) -> bool:
    log = path.with_name(LOG)
    return log.exists() and log.stat().st_size > 0


def is_being_written(folder: Path) -> bool:
    """Return whether a process is writing to the run."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock, or it may not be read
        return False
    return False


def _address(path: Path) -> str:
    return path.absolute().as_uri()


@contextmanager
def _opened(path: Path, address: str) -> Generator[RecordStore]:
    try:
        _check_header(path)
        with closing(sqlite3.connect(address, isolation_level=None, uri=True)) as connection:
            yield RecordStore(path, connection)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in MACHINE_ERRORS:
            raise DataError(f"{path}: cannot be written or read ({error})") from None
        raise _damaged(path, str(error)) from None


def _check_header(path: Path) -> None:
    """Raise DataError if the file is not a database with a log: SQLite would ignore or delete the log."""
    if not path.exists():
        return
    with path.open("rb") as file:
        header = file.read(20)
    if header and not (header.startswith(MAGIC) and header.endswith(LOG_VERSIONS)):
        raise _damaged(path, "its header is not that of a database")
    if not header and _has_log(path):
        raise _damaged(path, "it is empty, and its log is not")


def _damaged(path: Path, problem: str) -> DataError:
    return DataError(
        f"{path}: damaged ({' '.join(problem.split())}): {_salvage_hint(path)}; "
        f"deleting {path.parent} starts over"
    )


def _salvage_hint(path: Path) -> str:
    return f"`memo report {shlex.quote(str(path.parent))} --salvage NEW` saves the intact rows to a new run"
