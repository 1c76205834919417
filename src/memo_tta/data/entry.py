"""A catalog entry: how to find and open a data set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memo_tta.data.corruptions.severity import TEST
from memo_tta.data.dataset import Dataset
from memo_tta.files import data_folder

OpenClean = Callable[[Path], Dataset]
OpenPart = Callable[[Path, str, int], Dataset]  # folder, corruption, severity


@dataclass(frozen=True)
class CatalogEntry:
    """A data set: its description, its folder below $MEMO_DATA and the function that reads it."""

    about: str
    folder_name: str  # empty for a bundled data set, and for one that the user names by path
    open_clean: OpenClean | None = None  # for a data set without parts
    open_part: OpenPart | None = None  # for a data set with one part per corruption and severity
    corruptions: Sequence[str] = TEST  # those of a data set with parts; the default for others

    def folder(self) -> Path:
        return data_folder() / self.folder_name
