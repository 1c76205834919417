"""What decides pixels and records besides a job: the data on disk, and what is installed."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from memo_tta import __version__
from memo_tta.data.corruptions.frost import frost_source

PACKAGES = ("torch", "numpy")


def surroundings(paths: Sequence[Path]) -> dict[str, str]:
    """What is found at these paths, and which versions, where this is called."""
    found = {str(path): _kind(path) for path in paths}
    return {
        **found,
        "memo-tta": __version__,
        **{name: version(name) for name in PACKAGES},
        "frost": frost_source(),
    }


def _kind(path: Path) -> str:
    if path.is_file():
        return f"a file of {path.stat().st_size} bytes"
    if path.is_dir():  # an empty one is where something should have been mounted
        return "a folder" if any(path.iterdir()) else "an empty folder"
    return "not there"
