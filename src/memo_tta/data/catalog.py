"""The data sets that have a name, and those that have a path."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memo_tta.data.corrupted_dataset import corrupted
from memo_tta.data.corruptions.severity import CORRUPTIONS, SEVERITIES, TEST
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats import cifar, folder, imagenet
from memo_tta.data.formats.arrays import open_npz
from memo_tta.data.sample_images import load_sample
from memo_tta.errors import ConfigError, DataError
from memo_tta.files import data_folder
from memo_tta.registry import Registry, unknown_name

Part = Callable[[Path, str, int], Dataset]  # of a folder: this corruption at this level
Clean = Callable[[Path], Dataset]


@dataclass(frozen=True)
class CatalogEntry:
    """A published data set: what it is, which folder below $MEMO_DATA holds it, how its files are read."""

    about: str
    home: str
    clean: Clean | None = None  # reads a set that is one piece
    part: Part | None = None  # reads one corruption at one level of a set that has many
    corruptions: Sequence[str] = TEST  # which of them, unless told otherwise

    def folder(self) -> Path:
        return data_folder() / self.home


CATALOG = Registry(
    "data set",
    {
        "sample": CatalogEntry("500 test images of CIFAR-10", "", clean=lambda _: load_sample()),
        "cifar10": CatalogEntry("10,000 test images", "cifar10", clean=cifar.open_cifar10),
        "cifar10-train": CatalogEntry(
            "50,000 training images", "cifar10", clean=partial(cifar.open_cifar10, split="train")
        ),
        "cifar10.1": CatalogEntry(
            "2,000 new test images, v6",
            "cifar10.1",
            clean=partial(cifar.open_cifar101, version="v6", rows=2000),
        ),
        "cifar10.1-v4": CatalogEntry(
            "2,021 new test images, v4",
            "cifar10.1",
            clean=partial(cifar.open_cifar101, version="v4", rows=2021),
        ),
        "cifar10-c": CatalogEntry(
            "CIFAR-10's test images, corrupted", "cifar10-c", part=partial(cifar.open_cifar10c, rows=10000)
        ),
        "imagenet-c": CatalogEntry(
            "ImageNet's validation images, corrupted", "imagenet-c", part=imagenet.open_imagenet_c
        ),
        "imagenet-r": CatalogEntry(
            "30,000 renditions of 200 ImageNet classes",
            "imagenet-r",
            clean=partial(imagenet.open_imagenet_part, name="imagenet-r"),
        ),
        "imagenet-a": CatalogEntry(
            "7,500 hard photographs of 200 ImageNet classes",
            "imagenet-a",
            clean=partial(imagenet.open_imagenet_part, name="imagenet-a"),
        ),
    },
)


def load_dataset(spec: str, seed: int = 0) -> Dataset:
    """One data set: a name or a path; `+CORRUPTION:LEVEL` after it picks a part, or corrupts on the fly."""
    parts = load_parts(spec, seed=seed)
    if len(parts) > 1:
        raise ConfigError(f"{spec}: has {len(parts)} parts: name one, like {spec.partition('+')[0]}+fog:5")
    return parts[0]


def load_parts(
    spec: str,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] | None = None,
    seed: int = 0,
) -> list[Dataset]:
    """Every part of a data set; of a corrupted one, unless told otherwise, each test corruption and level."""
    name, shift = _cut(spec)
    if shift and (corruptions is not None or severities is not None):
        raise ConfigError(f"{spec}: names its corruption already: leave it out there, or here")
    if shift:
        corruptions, severities = _shift(spec, shift)
    for corruption in corruptions or ():
        if corruption not in CORRUPTIONS:
            raise unknown_name("corruption", corruption, CORRUPTIONS)
    for severity in severities or ():
        if severity not in SEVERITIES:
            raise ConfigError(f"severity: expected 1..5, got {severity}")
    entry, home = _entry(name)
    wanted = [(c, s) for c in corruptions or entry.corruptions for s in severities or SEVERITIES]
    if entry.part is not None:
        return [entry.part(home, corruption, severity) for corruption, severity in wanted]
    assert entry.clean is not None
    clean = entry.clean(home)
    if corruptions is None and severities is None:
        return [clean]
    return [corrupted(clean, corruption, severity, seed) for corruption, severity in wanted]


def locate(spec: str) -> tuple[str, list[Path]]:
    """The same data set whatever the working directory, and where on disk it lies, unless it comes along."""
    name, shift = _cut(spec)
    entry, home = _entry(name)
    if name in CATALOG:
        return spec, [home] if entry.home else []
    return f"{home.absolute()}+{shift}" if shift else str(home.absolute()), [home.absolute()]


def _cut(spec: str) -> tuple[str, str]:
    """What stands before the plus, and after it."""
    name, plus, shift = ("", "", "") if Path(spec).exists() else spec.rpartition("+")
    return (name, shift) if plus else (spec, "")


def _shift(spec: str, shift: str) -> tuple[list[str], list[int] | None]:
    """What stands after the plus: CORRUPTION or CORRUPTION:LEVEL."""
    corruption, colon, level = shift.partition(":")
    if colon and not level.isdecimal():
        raise ConfigError(f"{spec}: expected a level 1..5 after the colon, got {level!r}")
    return [corruption], [int(level)] if colon else None


def _entry(name: str) -> tuple[CatalogEntry, Path]:
    """How to read a name or a path, and where it lies."""
    if name in CATALOG:
        entry = CATALOG[name]
        home = entry.folder()
        if entry.home and not home.is_dir():
            raise DataError(f"{name}: not found in {home}: get it with `memo data get {entry.home}`")
        return entry, home
    path = Path(name).expanduser()
    if path.suffix == ".npz" and path.is_file():
        return CatalogEntry("", "", clean=open_npz), path
    if path.is_dir():
        return _layout(path), path
    if path.suffix or path.parent != Path():
        raise DataError(f"{name}: no such folder or .npz file, and no name of a data set")
    raise unknown_name("data set", name, CATALOG)


def _layout(path: Path) -> CatalogEntry:
    """What kind of folder this is, by what lies in it."""
    if (path / "labels.npy").is_file():
        here = [name for name in CORRUPTIONS if (path / f"{name}.npy").is_file()]
        return CatalogEntry("", "", part=cifar.open_cifar10c, corruptions=here)
    classes = folder.class_folders(path)
    if set(classes) <= set(CORRUPTIONS):
        inner = path / classes[0] / "1"
        known = inner.is_dir() and imagenet.is_imagenet(inner)
        part = imagenet.open_imagenet_c if known else folder.open_corrupted_folder
        here = [name for name in CORRUPTIONS if name in classes]
        return CatalogEntry("", "", part=part, corruptions=here)
    return CatalogEntry(
        "", "", clean=imagenet.open_imagenet if imagenet.is_imagenet(path) else folder.open_folder
    )
