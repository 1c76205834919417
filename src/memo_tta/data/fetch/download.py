"""Fetch a file: resumed where it stopped, used only if its checksum is right."""

import hashlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from memo_tta.errors import DataError

CHUNK = 1 << 18
TIMEOUT = 30

Report = Callable[[int, int | None], None]  # bytes so far, bytes in all


def check(path: Path, checksum: str, what: str) -> None:
    """Raise unless the file has this checksum, "sha256:..." or "md5:..."."""
    kind, _, expected = checksum.partition(":")
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    if found != expected:
        raise DataError(f"{what}: expected {kind} {expected}, got {found}")


def download(url: str, path: Path, checksum: str | None, report: Report) -> None:
    """Put the file at `url` to `path`; what came before a break is kept beside it as `.part`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        _append(url, part, report)
    except (HTTPError, URLError, HTTPException, OSError) as error:
        raise DataError(f"{url}: cannot be fetched ({getattr(error, 'reason', error)})") from None
    if checksum is not None:
        try:
            check(part, checksum, url)
        except DataError as error:
            part.unlink()
            raise DataError(f"{error}: deleted, try again") from None
    part.replace(path)


def _append(url: str, part: Path, report: Report) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        if have and error.code == 416:  # nothing is left to fetch
            return
        raise
    with response:
        if response.status != 206:  # a server that cannot resume sends all of it
            have = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with part.open("ab" if have else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                report(have, total)
    if total is not None and have < total:
        raise URLError(f"the connection ended after {have} of {total} bytes")
