"""Seeded damage to files, bombs, and a child process whose memory is watched."""

import gzip
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
MIB = 2**20
MAX_GROWTH = 256  # MiB of peak memory that damaged files may cost
BOMB = 1500  # MiB


def _span(content: bytes, rng: np.random.Generator) -> slice:
    start = int(rng.integers(len(content)))
    return slice(start, start + int(rng.integers(1, 300)))


def truncated(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: rng.integers(1, len(content))]


def with_flipped_bits(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for position in rng.integers(len(content), size=rng.integers(1, 9)):
        changed[position] ^= 1 << rng.integers(8)
    return bytes(changed)


def with_zeros(content: bytes, rng: np.random.Generator) -> bytes:
    span = _span(content, rng)
    return content[: span.start] + bytes(len(content[span])) + content[span.stop :]


def with_swapped_blocks(content: bytes, rng: np.random.Generator) -> bytes:
    a, b, c = sorted(rng.integers(len(content), size=3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def with_insertion(content: bytes, rng: np.random.Generator) -> bytes:
    place = rng.integers(len(content) + 1)
    return content[:place] + rng.bytes(int(rng.integers(1, 300))) + content[place:]


def with_repetition(content: bytes, rng: np.random.Generator) -> bytes:
    span = _span(content, rng)
    return content[: span.stop] + content[span] + content[span.stop :]


def with_another_number(content: bytes, rng: np.random.Generator) -> bytes:
    """Overwrite one to eight bytes near either end, where headers are, with an extreme number."""
    size = int(rng.choice([1, 2, 4, 8]))
    place = int(rng.integers(min(600, len(content) - size)))
    place = place if rng.random() < 0.5 else len(content) - size - place
    number = bytes([rng.choice([0, 1, 0x7F, 0x80, 0xFF])]) * size
    return content[:place] + number + content[place + size :]


DAMAGES = (
    *(truncated, with_flipped_bits, with_zeros, with_swapped_blocks),
    *(with_insertion, with_repetition, with_another_number),
)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Return the content with one or two kinds of damage."""
    for _ in range(rng.integers(1, 3)):
        content = DAMAGES[rng.integers(len(DAMAGES))](content, rng) or b"x"
    return content


def deflated_zeros(start: bytes = b"", megabytes: int = BOMB, byte: bytes = b"\0") -> bytes:
    """Return a deflate stream of `start` and very many equal bytes, made without compressing them all."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = compressor.compress(start) + compressor.flush(zlib.Z_FULL_FLUSH)
    block = compressor.compress(byte * MIB) + compressor.flush(zlib.Z_FULL_FLUSH)
    return first + block * megabytes + compressor.flush()


def gzipped_zeros(start: bytes = b"", megabytes: int = BOMB) -> bytes:
    """Return a valid gzip file of `start` and very many zeros."""
    return gzip.compress(start) + gzip.compress(bytes(MIB)) * megabytes


def write_zip(path: Path, files: dict[str, bytes], **changes: int) -> Path:
    """Write a zip file; change fields of its last member in the directory at its end."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        for field, value in changes.items():
            setattr(archive.infolist()[-1], field, value)
    return path


def bomb_entry(start: bytes = b"", megabytes: int = BOMB) -> dict[str, int]:
    """Return the fields of a zip member that holds `deflated_zeros`."""
    return {"compress_type": zipfile.ZIP_DEFLATED, "file_size": len(start) + megabytes * MIB}


def peak_memory() -> int:
    """Return the peak of this process's memory in MiB; `ru_maxrss` would begin at that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def watched(check: Callable[[str], object], cases: list[str]) -> None:
    """Check every case; raise if one fails, or if together they take much memory."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is used now
    before = peak_memory()
    for case in cases:
        try:
            check(case)
        except BaseException:
            print(f"failed: {case}", file=sys.stderr)  # noqa: T201
            raise
        growth = peak_memory() - before
        assert growth <= MAX_GROWTH, f"{case}: the peak of memory grew by {growth} MiB"


def run_in_child(module: str, *arguments: object) -> None:
    """Call `main` of a module, with strings, in a fresh process whose warnings are errors."""
    call = f"import sys; from {module} import main; main(*sys.argv[1:])"
    words = [sys.executable, "-W", "error", "-c", call, *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
