"""The data folder, and files and folders that appear complete or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp


def data_folder() -> Path:
    """Return the folder of data sets and weights: $MEMO_DATA, or ~/.cache/memo-tta."""
    return Path(os.environ.get("MEMO_DATA") or Path.home() / ".cache" / "memo-tta")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; move it to `path` if the block succeeds, else delete it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it to `path`, which must not exist, if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield part
        part.chmod(0o755)
        part.rename(path)
    finally:
        rmtree(part, ignore_errors=True)


def remove_partial_files(folder: Path) -> None:
    """Delete the temporary files below the folder whose process is no longer running."""
    for part in folder.rglob(".*.part"):
        pid = part.name.split(".")[-2]
        if pid.isdecimal() and not _is_running(int(pid)):
            part.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
