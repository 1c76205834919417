"""The data folder, and files and folders that appear complete or not at all."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EEXIST, EISDIR, ENAMETOOLONG, ENOSPC, ENOTDIR, EPERM, EROFS
from glob import escape
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from memo_tta.errors import ConfigError

# What to do about an error when writing.
ADVICE = {
    **dict.fromkeys((ENOSPC, EDQUOT), "make room, then run the same command again"),
    **dict.fromkeys((EACCES, EPERM, EROFS), "choose a place where you may write"),
    **dict.fromkeys((EISDIR, ENOTDIR, EEXIST, ENAMETOOLONG), "choose another path"),
}


def data_folder() -> Path:
    """Return the folder of data sets and weights: $MEMO_DATA, or ~/.cache/memo-tta."""
    return Path(os.environ.get("MEMO_DATA") or Path.home() / ".cache" / "memo-tta")


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn a system error while a file or folder is written into one that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in ADVICE or not _concerns(error, path):
            raise
        raise ConfigError(f"{path}: cannot be written ({error.strerror}): {ADVICE[error.errno]}") from error


def _concerns(error: OSError, path: Path) -> bool:
    """Return whether the error is about the path, something in it or above it, or its temporary file."""
    if error.filename is None:  # the disk is full
        return True
    name = Path(os.fsdecode(error.filename))
    return name in (path, *path.parents) or path in name.parents or name.name.startswith(f".{path.name}.")


def check_output_folder(folder: Path) -> None:
    """Raise ConfigError unless files can be written to the folder; it need not exist, and is not created."""
    with output_errors(folder):
        if folder.is_dir():
            if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
                raise ConfigError(f"{folder}: may not be written to: {ADVICE[EACCES]}")
        elif folder.is_symlink():
            raise ConfigError(f"{folder}: is a link, but not to a folder: remove it, or choose another path")
        elif folder.exists():
            raise ConfigError(f"{folder}: is a file, expected a folder: choose another path")
        else:
            check_output_folder(folder.parent)


def check_output_file(path: Path) -> None:
    """Raise ConfigError unless the file can be written; its folder need not exist, and is not created."""
    with output_errors(path):
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a device"
            raise ConfigError(f"{path}: is {kind}, expected a file: choose another path")
    check_output_folder(path.parent)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; move it to `path` if the block succeeds, else delete it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
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
    _remove_if_left(folder.rglob(".*.part"))


def remove_partial_copies(path: Path) -> None:
    """Delete the temporary files of this one file whose process is no longer running."""
    _remove_if_left(path.parent.glob(f".{escape(path.name)}.*.part"))


def _remove_if_left(parts: Iterable[Path]) -> None:
    for part in parts:
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
