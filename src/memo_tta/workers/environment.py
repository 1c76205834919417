"""Facts about a machine that change results: its data on disk and its installed versions."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from memo_tta import __version__

PACKAGES = ("torch", "numpy")


def environment(
    paths: Sequence[Path], facts: Mapping[str, Callable[[], str]] | None = None
) -> dict[str, str]:
    """Describe what is at these paths on this machine, the installed versions, and each further fact."""
    return {
        **{str(path): _describe(path) for path in paths},
        "memo-tta": __version__,
        **{name: version(name) for name in PACKAGES},
        **{name: look_up() for name, look_up in (facts or {}).items()},
    }


def _describe(path: Path) -> str:
    if path.is_file():
        return f"a file of {path.stat().st_size} bytes"
    if path.is_dir():  # an empty one may be a mount point with nothing mounted
        return "a folder" if any(path.iterdir()) else "an empty folder"
    return "missing"
