"""WebDataset shards: uncompressed tar files with an image and a label per sample, read in place."""

import glob
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from memo_tta.archives import CHUNK, damage_raises
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.folder import SUFFIXES
from memo_tta.data.formats.label_values import LABEL_NAMES, classes_of
from memo_tta.data.tar_members import members, open_plain_tar
from memo_tta.errors import DataError, InputError
from memo_tta.image import decode_image

LABEL_SUFFIXES = (".cls", ".json")  # the first that a sample has counts
LABEL_KEYS = (*LABEL_NAMES, "cls")  # in a .json
MAX_LABEL = 1 << 20  # bytes
MAX_IMAGE = 1 << 28  # bytes
NUMBER_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")  # in a pattern: {000..146}


@dataclass(frozen=True)
class TarImages:
    """Image files inside tar files, each read from its place on access."""

    shards: Sequence[Path]
    ids: Sequence[str]
    shard: np.ndarray  # of each image: its index in `shards`, offset and bytes
    offset: np.ndarray
    size: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, position: int) -> np.ndarray:
        path = self.shards[self.shard[position]]
        size = int(self.size[position])
        try:
            with path.open("rb") as file:
                file.seek(self.offset[position])
                content = file.read(size)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        if len(content) < size:
            raise InputError(f"{path}: was cut off since it was opened")
        return decode_image(content, f"{path}: {self.ids[position]}")


class SamplePart(NamedTuple):
    """A member of a tar file, and what its name says: of which sample it is, and what of it."""

    key: str
    suffix: str  # in lower case, with all dots
    member: tarfile.TarInfo


class TarSample(NamedTuple):
    """Where a sample's image is, and its label as it is written."""

    id: str
    offset: int
    size: int
    label: object


def is_tar_folder(path: Path) -> bool:
    """Return whether the folder has tar files and no sub-folders."""
    entries = [entry for entry in path.iterdir() if entry.name[0] != "."]
    return any(entry.suffix == ".tar" for entry in entries) and not any(entry.is_dir() for entry in entries)


def open_shards(path: Path) -> Dataset:
    """Open a tar file, all tar files of a folder, or those that match a pattern."""
    shards = _find_shards(path)
    samples: list[TarSample] = []
    shard: list[int] = []
    for index, file in enumerate(shards):
        found = _index(file)
        samples += found
        shard += [index] * len(found)
    ids, offset, size, labels = zip(*samples, strict=True)
    labels, targets = classes_of(str(path), labels, ids)
    images = TarImages(shards, ids, np.array(shard), np.array(offset), np.array(size))
    return Dataset(_name(path), images, targets, labels, ids=ids)


def _find_shards(path: Path) -> list[Path]:
    """Return the tar files, sorted; each that a range of numbers names must exist."""
    if path.is_dir():
        return sorted(path.glob("*.tar"))
    if path.is_file():
        return [path]
    found: list[Path] = []
    for pattern in _expand(str(path)):
        matching = sorted(map(Path, glob.glob(pattern)))  # noqa: PTH207 (the pattern may be absolute)
        if not matching:
            raise DataError(f"{pattern}: no such tar file")
        found += matching
    return found


def _expand(pattern: str) -> Iterator[str]:
    """Yield the pattern once per number of its range, if it has one."""
    if (numbers := NUMBER_RANGE.search(pattern)) is None:
        yield pattern
        return
    first, last = numbers.groups()
    start, end = numbers.span()
    for number in range(int(first), int(last) + 1):
        yield f"{pattern[:start]}{number:0{len(first)}}{pattern[end:]}"


def _name(path: Path) -> str:
    """Return the file's or folder's name, without what stands for several files."""
    return re.split(r"[*?\[{]", path.stem)[0].rstrip("-_.") or path.parent.name


def _index(path: Path) -> list[TarSample]:
    """Return the samples of a tar file in their order; members of one key are neighbours."""
    with (
        damage_raises(DataError, f"{path}: not an uncompressed tar file, or damaged"),
        open_plain_tar(path) as tar,
        path.open("rb") as file,
    ):
        found = members(tar, path.stat().st_size)
        parts = (_split(member) for member in found if member.isreg())
        samples = [
            _sample(path, key, list(group), file)
            for key, group in groupby(parts, lambda part: part.key)
            if key
        ]
        _check_end(file, tar.offset)  # pyright: ignore[reportAttributeAccessIssue]
    if not samples:
        raise DataError(f"{path}: expected samples like 0001.jpg and 0001.cls, found none")
    return samples


def _split(member: tarfile.TarInfo) -> SamplePart:
    """Split a member's name at the first dot of its last part; a hidden file has no key."""
    folder, slash, name = member.name.removeprefix("./").rpartition("/")
    stem, _, suffix = name.partition(".")
    return SamplePart(stem and folder + slash + stem, "." + suffix.lower(), member)


def _sample(path: Path, key: str, parts: Sequence[SamplePart], file: IO[bytes]) -> TarSample:
    by_suffix = {part.suffix: part.member for part in parts}
    images = [member for suffix, member in by_suffix.items() if suffix in SUFFIXES]
    label = next((by_suffix[suffix] for suffix in LABEL_SUFFIXES if suffix in by_suffix), None)
    if len(images) != 1 or label is None or len(by_suffix) < len(parts):
        names = ", ".join(part.member.name for part in parts)
        raise DataError(f"{path}: {key}: expected one image and one .cls or .json file, found {names}")
    (image,) = images
    if image.size > MAX_IMAGE:
        raise DataError(f"{path}: {image.name}: expected at most {MAX_IMAGE} bytes, found {image.size}")
    return TarSample(f"{path.stem}/{key}", image.offset_data, image.size, _read_label(path, label, file))


def _read_label(path: Path, member: tarfile.TarInfo, file: IO[bytes]) -> object:
    """Return the label as it is written: a .cls is an index or a name, a .json has it under some key."""
    if member.size > MAX_LABEL:
        raise DataError(f"{path}: {member.name}: expected at most {MAX_LABEL} bytes, found {member.size}")
    file.seek(member.offset_data)
    with damage_raises(DataError, f"{path}: {member.name}: cannot be read as a label"):
        text = file.read(member.size).decode()
        if member.name.endswith(".cls"):
            return text
        content: Any = json.loads(text)
        if not isinstance(content, dict):
            return content
        found = [key for key in LABEL_KEYS if key in content]
        if len(found) != 1:
            raise ValueError(f"expected one of the keys {', '.join(LABEL_KEYS)}, found {', '.join(content)}")
        return content[found[0]]


def _check_end(file: IO[bytes], offset: int) -> None:
    """Raise unless the file ends here with zeros, as a complete tar file does."""
    file.seek(offset)
    end = file.read(CHUNK)
    if len(end) < tarfile.BLOCKSIZE or any(end):
        raise ValueError("its end marker is missing, or something comes after it: it may be cut off")
