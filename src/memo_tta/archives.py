"""Read zip, tar and .npy files that may be damaged, or made to fill the memory."""

import errno
import gzip
import io
import math
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from memo_tta.errors import MemoError

MAX_REASON = 200  # characters of a decoder's message
CHUNK = 1 << 20  # bytes
MAX_READ = 1 << 22  # bytes at once: enough for a zip file's directory of 50,000 members
MAX_HEADER = 1 << 10  # bytes of a .npy file's header; numpy writes about 100
MAX_STREAM = 1 << 30  # bytes that a tar file may unpack to, skipped ones included
# What a zip file may unpack to: 192 MiB, or 20 times its size.
MAX_UNPACKED, MAX_RATIO = 3 << 26, 20
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
ENCRYPTED = 1  # flag of a zip member
FOLDER = 0x10  # attribute of a zip member
WITHOUT_CONTENT = (
    *(tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE),
    *(tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE),
)


class Stream(Protocol):
    """A readable file, or a readable member of an archive."""

    def read(self, size: int, /) -> bytes: ...
    def tell(self) -> int: ...


@contextmanager
def damage_raises(kind: type[MemoError], message: str) -> Iterator[None]:
    """Turn whatever decoders raise in the block into one error, but not a full memory or disk."""
    try:
        yield
    except (MemoError, MemoryError):
        raise
    except Exception as error:  # decoders do not say which exceptions damaged bytes can raise
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        raise kind(f"{message} ({lines[0][:MAX_REASON]})") from None


class ShortReads(io.FileIO):
    """A file that refuses to read much at once, however much a damaged header asks for."""

    def read(self, size: int | None = -1, /) -> bytes:
        limit = MAX_READ + 1
        content = super().read(limit if size is None or size < 0 else min(size, limit)) or b""
        if len(content) == limit:
            raise ValueError(f"a header asks for more than {MAX_READ} bytes at once")
        return content


@contextmanager
def open_zip(path: Path, max_ratio: float = MAX_RATIO) -> Iterator[zipfile.ZipFile]:
    """Open a zip file that can be unpacked safely: no encryption, no name twice, no excessive size."""
    with ShortReads(path) as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        unpacked, packed = sum(member.file_size for member in members), path.stat().st_size
        if unpacked > max(MAX_UNPACKED, max_ratio * packed):
            raise ValueError(f"{packed} bytes that unpack to {unpacked}")
        if len({member.filename for member in members}) < len(members):
            raise ValueError("two members have the same name")
        for member in members:
            # zipfile does not verify the checksum of a stored member that ends early.
            if member.compress_type == zipfile.ZIP_STORED and member.compress_size != member.file_size:
                raise ValueError(f"{member.filename} is stored with two sizes")
            # torch does not read a member that is marked as a folder, and takes what is in memory.
            if member.external_attr & FOLDER and not member.is_dir():
                raise ValueError(f"{member.filename} is marked as a folder")
            # Other methods unpack a few bytes to gigabytes at once.
            if member.flag_bits & ENCRYPTED or member.compress_type not in (
                zipfile.ZIP_STORED,
                zipfile.ZIP_DEFLATED,
            ):
                raise ValueError(
                    f"{member.filename} is encrypted, or compressed by another method than deflate"
                )
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return a member of at most `limit` bytes."""
    with archive.open(name) as member:
        content = b"".join(chunks(member, limit + 1))
    if len(content) > limit:
        raise ValueError(f"{name} has more than {limit} bytes")
    return content


def chunks(file: Stream, limit: float = math.inf) -> Iterator[bytes]:
    """Yield the rest of the file, but at most about `limit` bytes of it."""
    while limit > 0 and (chunk := file.read(CHUNK)):
        limit -= len(chunk)
        yield chunk


def read_tar(path: Path, is_wanted: Callable[[str], bool], limit: int) -> dict[str, bytes]:
    """Return the wanted files of a gzipped tar file by their paths, at most `limit` bytes in all.

    Longer names than 256 bytes, links and sparse files are not known here, and not wanted.
    """
    files: dict[str, bytes] = {}
    left = limit
    with gzip.open(path) as stream:
        while (header := _read_exactly(stream, tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE):
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            size = 0 if member.type in WITHOUT_CONTENT else member.size
            padded = math.ceil(size / tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            if not 0 <= size <= limit:
                raise ValueError(f"{member.name} has a size of {size} bytes, expected at most {limit}")
            if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and is_wanted(member.name):
                left -= size
                if left < 0:
                    raise ValueError(f"up to {member.name}, more than {limit} bytes")
                if member.name in files:
                    raise ValueError(f"two members are named {member.name}")
                files[member.name] = _read_exactly(stream, size)
                padded -= size
            _read_exactly(stream, padded, keep=False)
        for _ in chunks(stream):  # to the end, where gzip verifies its checksum
            _check_length(stream)
    return files


def _read_exactly(stream: Stream, size: int, keep: bool = True) -> bytes:
    """Read this many bytes; return them unless they are to be skipped."""
    kept = bytearray()
    while size:
        chunk = stream.read(min(size, CHUNK))
        if not chunk:
            raise ValueError("it ends in the middle of a file")
        _check_length(stream)
        size -= len(chunk)
        if keep:
            kept += chunk
    return bytes(kept)


def _check_length(stream: Stream) -> None:
    if stream.tell() > MAX_STREAM:
        raise ValueError(f"unpacks to more than {MAX_STREAM} bytes")


class ArrayHeader(NamedTuple):
    """What precedes the values in a .npy file."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype
    length: int  # bytes of the header itself


def read_array_header(file: Stream, size: int) -> ArrayHeader:
    """Read the header of `size` bytes of .npy content; raise unless its array fills them exactly."""
    start = io.BytesIO(file.read(MAX_HEADER))
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(start)
    if version not in readers:
        raise ValueError(f"unknown version {version} of the .npy format")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers that Python 2 wrote, or that are damaged
        shape, is_fortran, dtype = readers[version](start, max_header_size=MAX_HEADER)
    if dtype.hasobject:
        raise ValueError("expected numbers, found Python objects")
    expected = start.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or expected != size:
        raise ValueError(f"{dtype} of shape {shape} takes {expected} bytes, found {size}")
    return ArrayHeader(shape, is_fortran, dtype, start.tell())
