"""The members of an uncompressed tar file: plain files and folders that fit into it, or an error."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

MAX_NAME = 1 << 16  # bytes of a header that gives a member a long name
NAMES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)


class PlainHeader(tarfile.TarInfo):
    """A member's header that is refused unless it is of a file, of a folder or of a long name."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        is_plain = header.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
        if not is_plain and (header.type not in NAMES or header.size > MAX_NAME):
            raise ValueError(
                f"{header.name}: expected a file or a folder, got a link, a device or another type"
            )
        if header.size < 0:
            raise ValueError(f"{header.name} has a size of {header.size} bytes")
        return header


@contextmanager
def open_plain_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an uncompressed tar file, which cannot hold more than its own size."""
    with tarfile.open(path, "r:", tarinfo=PlainHeader) as tar:
        yield tar


def members(tar: tarfile.TarFile, size: int) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a file of `size` bytes, and forget them: there may be a million."""
    while member := tar.next():
        tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]
        if member.issparse() or not 0 <= member.size <= size - member.offset_data:
            raise ValueError(f"{member.name}: expected {member.size} bytes, found fewer")
        yield member
