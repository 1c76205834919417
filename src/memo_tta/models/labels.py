"""Class names: from a list, a dict by index, a file, or the configuration of a model."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from memo_tta.errors import ConfigError

Labels = Sequence[str] | Mapping[int, str] | Mapping[str, str] | str | PathLike[str]

MAX_BYTES = 1 << 22  # of a file of labels; 1,000 names take 20,000


def read_labels(labels: Labels) -> tuple[str, ...]:
    """Return the class names of a sequence, of a dict by index, or of a text file with one name per line."""
    if isinstance(labels, str | PathLike):
        return _from_file(Path(labels))
    if isinstance(labels, Mapping):
        return _by_index(labels)
    if isinstance(labels, set | frozenset) or not isinstance(labels, Iterable):
        raise ConfigError(
            f"labels: expected a list of names, a dict by index or a file, got {type(labels).__name__}"
        )
    return tuple(str(name) for name in labels)


def config_labels(module: nn.Module) -> tuple[str, ...] | None:
    """Return the class names in the configuration of a Hugging Face model, or None."""
    names = getattr(getattr(module, "config", None), "id2label", None)
    return _by_index(names) if isinstance(names, Mapping) and names else None


def _by_index(names: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return names in the order of their indices, which may be strings, as in JSON."""
    try:
        by_index = {int(index): str(name) for index, name in names.items()}
    except (TypeError, ValueError):
        raise ConfigError(
            f"labels: expected a dict from index to name, got the key {next(iter(names))!r}"
        ) from None
    last = max(by_index, default=-1)
    missing = [index for index in range(last + 1) if index not in by_index]
    if missing or min(by_index, default=0) < 0 or len(by_index) != len(names):
        shown = ", ".join(map(str, missing[:5])) + (" ..." if len(missing) > 5 else "")
        problem = f"no name for {shown}" if missing else f"the indices {sorted(names, key=str)[:5]}"
        raise ConfigError(f"labels: expected one name for each index in 0..{last}, got {problem}")
    return tuple(by_index[index] for index in range(last + 1))


def _from_file(path: Path) -> tuple[str, ...]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"labels: {path}: cannot be read ({error.strerror}): "
            "give a list of names, a dict by index, or a text file with one name per line"
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if len(content) > MAX_BYTES or "\0" in text:
        raise ConfigError(f"labels: {path}: expected a UTF-8 text file with one name per line")
    lines = [line.strip() for line in text.rstrip().split("\n")]
    if "" in lines:
        raise ConfigError(
            f"labels: {path}: expected one name per line, but line {lines.index('') + 1} is empty"
        )
    return tuple(lines)
