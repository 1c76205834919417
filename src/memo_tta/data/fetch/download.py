"""Resumable downloads, verified by checksum."""

import hashlib
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from memo_tta.errors import DataError

CHUNK = 1 << 18  # bytes
TIMEOUT = 30  # seconds

OnBytes = Callable[[int, int | None], None]  # bytes so far, bytes in total if known


def verify_checksum(path: Path, checksum: str, source: str) -> None:
    """Raise unless the file has this checksum, "sha256:..." or "md5:..."."""
    verify_one_of(path, [checksum], source)


def verify_one_of(path: Path, checksums: Sequence[str], source: str) -> None:
    """Raise unless the file has one of these checksums, all of one algorithm."""
    if not path.is_file():
        raise DataError(f"{path}: is not a file" if path.exists() else f"{path}: no such file")
    algorithm = checksums[0].partition(":")[0]
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, algorithm).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if f"{algorithm}:{found}" not in checksums:
        expected = " or ".join(checksum.replace(":", " ") for checksum in checksums)
        raise DataError(f"{source}: expected {expected}, got {found}")


def download(url: str, path: Path, checksum: str | None, on_bytes: OnBytes) -> None:
    """Download `url` to `path`; a download that breaks off stays as `.part` and is resumed next time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.part")
    try:
        _append(url, partial, on_bytes)
    except (HTTPError, URLError, HTTPException, OSError) as error:
        raise DataError(f"{url}: download failed ({getattr(error, 'reason', error)})") from None
    if checksum is not None:
        try:
            verify_checksum(partial, checksum, url)
        except DataError as error:
            partial.unlink()
            raise DataError(f"{error}: deleted, try again") from None
    partial.replace(path)


def _append(url: str, partial: Path, on_bytes: OnBytes) -> None:
    """Download what the partial file does not have yet."""
    done = partial.stat().st_size if partial.exists() else 0
    request = Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        if done and error.code == 416:  # range not satisfiable: the file is complete
            return
        raise
    with response:
        if response.status != 206:  # the server ignores ranges and sends the whole file
            done = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with partial.open("ab" if done else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                on_bytes(done, total)
    if total is not None and done < total:
        raise URLError(f"the connection ended after {done} of {total} bytes")
