"""Where files go, and how they appear there: whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp


def data_folder() -> Path:
    """Where data sets and weights go: $MEMO_DATA, or ~/.cache/memo-tta."""
    return Path(os.environ.get("MEMO_DATA") or Path.home() / ".cache" / "memo-tta")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Gives a path to write to; it becomes `path` when the block ends well, and vanishes otherwise."""
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
    """Gives a folder to fill; it becomes `path`, which must not exist yet, when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield part
        part.chmod(0o755)
        part.rename(path)
    finally:
        rmtree(part, ignore_errors=True)


def remove_partial_files(folder: Path) -> None:
    """Delete what a killed process left of files it had begun below the folder."""
    for part in folder.rglob(".*.part"):
        pid = part.name.split(".")[-2]
        if pid.isdecimal() and not _alive(int(pid)):
            part.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
