"""Save the intact rows of a damaged run, from the pages of its database and of the log beside it.

The layout of pages and cells is that of https://www.sqlite.org/fileformat2.html. Nothing is trusted but the
checksum of each row, so a page that is lost takes only its own rows with it.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from memo_tta.errors import ConfigError, DataError
from memo_tta.evaluation.store import LOG, find_database, is_being_written, open_for_writing
from memo_tta.evaluation.tables import METADATA, RECORDS, SKIPPED, StoredRow, StoredTable
from memo_tta.files import atomic_folder, check_output_folder, output_errors

# Failed records are left out: whoever continues the run tries them again.
SAVED_TABLES = {len(table.columns): table for table in (METADATA, RECORDS, SKIPPED)}
PAGE_SIZE = 4096  # of a database whose header is damaged
PAGE_SIZES = [1 << power for power in range(9, 17)]
LOG_HEADER, FRAME_HEADER = 32, 24  # bytes
INDEX_INTERIOR, INDEX_LEAF = 2, 10  # kinds of the pages of tables without row ids
CELL_POINTERS = {INDEX_INTERIOR: 12, INDEX_LEAF: 8}  # where they begin on a page
CHILD_POINTER = {INDEX_INTERIOR: 4, INDEX_LEAF: 0}  # bytes at the start of a cell
FIXED_BYTES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}  # of the values of serial types

Page = bytes


def salvage(folder: Path, new: Path) -> None:
    """Write the intact rows of the run in `folder` to a new run."""
    path = find_database(folder)
    if new.exists() or new.is_symlink():
        raise ConfigError(f"{new}: exists already: name a new folder for the intact rows")
    check_output_folder(new)
    if is_being_written(folder):
        raise ConfigError(f"{folder}: another process is writing to this run: wait for it")
    found = intact_rows(path)
    if not found[RECORDS]:
        raise DataError(f"{path}: not one intact record was found: a new --out starts over")
    with output_errors(new), atomic_folder(new) as part, open_for_writing(part) as store:
        store.add_stored(found)


def intact_rows(path: Path) -> dict[StoredTable, list[StoredRow]]:
    """Return the intact rows of each table in a database and its log, each row once."""
    database, log = (file.read_bytes() if file.exists() else b"" for file in (path, path.with_name(LOG)))
    found: dict[StoredTable, dict[StoredRow, StoredRow]] = {table: {} for table in SAVED_TABLES.values()}
    for size in {PAGE_SIZE, int.from_bytes(database[16:18]), int.from_bytes(log[8:12])} & {*PAGE_SIZES}:
        for row in _rows(_database_pages(database, size), _log_pages(log, size)):
            table = SAVED_TABLES[len(row)]
            ordered = _in_schema_order(table, row)
            if table.is_intact(ordered):
                found[table].setdefault(row[: len(table.key)], ordered)
    return {table: list(rows.values()) for table, rows in found.items()}


def _in_schema_order(table: StoredTable, row: StoredRow) -> StoredRow:
    by_name = dict(zip(table.columns_on_disk, row, strict=True))
    return tuple(by_name[name] for name in table.columns)


def _database_pages(content: bytes, size: int) -> list[tuple[int, Page]]:
    """Return the numbered pages of a database."""
    return [(start // size + 1, content[start : start + size]) for start in range(0, len(content), size)]


def _log_pages(content: bytes, size: int) -> list[tuple[int, Page]]:
    """Return the numbered pages in a write-ahead log, the latest first."""
    starts = range(LOG_HEADER, len(content) - FRAME_HEADER, FRAME_HEADER + size)
    pages = ((start, start + FRAME_HEADER) for start in reversed(starts))
    return [(_number(content, start), content[page : page + size]) for start, page in pages]


def _rows(database: Sequence[tuple[int, Page]], log: Sequence[tuple[int, Page]]) -> Iterator[StoredRow]:
    """Yield everything on the pages that has as many columns as a table."""
    without_log = dict(database)
    with_log = {**without_log, **dict(reversed(log))}
    for _, page in chain(log, database):
        for size, local, overflow in _cells(page):
            for pages in (with_log, without_log) if overflow else ({},):
                row = _decode(_payload(size, local, overflow, pages))
                if len(row) in SAVED_TABLES:
                    yield row


def _cells(page: Page) -> Iterator[tuple[int, bytes, int]]:
    """Yield size, bytes on the page and first overflow page (0: none) of the payloads of an index page."""
    kind = page[0] if page else 0
    if kind not in CELL_POINTERS:
        return
    start = CELL_POINTERS[kind]
    for at in range(start, min(start + 2 * _number(page, 3, 2), len(page)), 2):
        try:
            size, begin = _varint(page, _number(page, at, 2) + CHILD_POINTER[kind])
        except IndexError:
            continue
        end = begin + _local_size(size, len(page))
        yield size, page[begin:end], _number(page, end) if end < begin + size else 0


def _local_size(size: int, page_size: int) -> int:
    """Return how many bytes of a payload are on the page of its cell; the rest is on overflow pages."""
    most, least = ((page_size - 12) * share // 255 - 23 for share in (64, 32))
    if size <= most:
        return size
    local = least + (size - least) % (page_size - 4)
    return local if local <= most else least


def _payload(size: int, local: bytes, overflow: int, pages: Mapping[int, Page]) -> bytes:
    """Return a payload with the content of its overflow pages, as far as they are there."""
    parts, seen = [local], set[int]()
    while overflow in pages and overflow not in seen:
        seen.add(overflow)
        page = pages[overflow]
        overflow = _number(page, 0)
        parts.append(page[4:])
    return b"".join(parts)[:size]


def _decode(payload: bytes) -> StoredRow:
    """Return the values of a record in SQLite's format; an empty row if it is not one."""
    try:
        body, at = _varint(payload, 0)
        types: list[int] = []
        while at < body:
            serial_type, at = _varint(payload, at)
            types.append(serial_type)
        row: list[Any] = []
        for serial_type in types:
            value, body = _value(payload, body, serial_type)
            row.append(value)
    except (IndexError, struct.error):
        return ()
    return tuple(row) if body == len(payload) else ()


def _value(payload: bytes, at: int, serial_type: int) -> tuple[Any, int]:
    """Return the value of this serial type, and where the next one begins."""
    end = at + (FIXED_BYTES[serial_type] if serial_type in FIXED_BYTES else (serial_type - 12) // 2)
    content = payload[at:end]
    if serial_type == 0:
        return None, end
    if serial_type == 7:
        return struct.unpack(">d", content)[0], end
    if serial_type in (8, 9):  # the constants 0 and 1
        return serial_type - 8, end
    if serial_type < 12:
        return int.from_bytes(content, signed=True), end
    return (content.decode("utf-8", "surrogateescape") if serial_type % 2 else content), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of one to nine bytes, most significant bits first, and where it ends."""
    value = 0
    for index in range(8):
        byte = data[at + index]
        value = value << 7 | byte & 127
        if byte < 128:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9


def _number(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size])
