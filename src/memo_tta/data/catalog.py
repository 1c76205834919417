"""Load a data set by its name or by its path."""

from collections.abc import Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path

from memo_tta.data.corrupted_dataset import corrupted
from memo_tta.data.corruptions.severity import SEVERITIES, check_corruptions
from memo_tta.data.dataset import Dataset
from memo_tta.data.entry import CatalogEntry
from memo_tta.data.formats import cifar, imagenet
from memo_tta.data.formats.hub import open_hub
from memo_tta.data.formats.hub_rows import PREFIX, parse_spec
from memo_tta.data.own_data import find_reader
from memo_tta.data.sample_images import load_sample
from memo_tta.errors import ConfigError, DataError
from memo_tta.registry import Registry, unknown_name

CATALOG = Registry(
    "data set",
    {
        "sample": CatalogEntry("500 test images of CIFAR-10", "", open_clean=lambda _: load_sample()),
        "cifar10": CatalogEntry("10,000 test images", "cifar10", open_clean=cifar.open_cifar10),
        "cifar10-train": CatalogEntry(
            "50,000 training images", "cifar10", open_clean=partial(cifar.open_cifar10, split="train")
        ),
        "cifar10.1": CatalogEntry(
            "2,000 new test images, v6",
            "cifar10.1",
            open_clean=partial(cifar.open_cifar101, version="v6", rows=2000),
        ),
        "cifar10.1-v4": CatalogEntry(
            "2,021 new test images, v4",
            "cifar10.1",
            open_clean=partial(cifar.open_cifar101, version="v4", rows=2021),
        ),
        "cifar10-c": CatalogEntry(
            "CIFAR-10's test images, corrupted",
            "cifar10-c",
            open_part=partial(cifar.open_cifar10c, rows=10000),
        ),
        "imagenet-c": CatalogEntry(
            "ImageNet's validation images, corrupted", "imagenet-c", open_part=imagenet.open_imagenet_c
        ),
        "imagenet-r": CatalogEntry(
            "30,000 renditions of 200 ImageNet classes",
            "imagenet-r",
            open_clean=partial(imagenet.open_imagenet_subset, name="imagenet-r"),
        ),
        "imagenet-a": CatalogEntry(
            "7,500 hard photographs of 200 ImageNet classes",
            "imagenet-a",
            open_clean=partial(imagenet.open_imagenet_subset, name="imagenet-a"),
        ),
    },
)


def load_dataset(spec: str | PathLike[str], seed: int = 0) -> Dataset:
    """Load one data set by name or path.

    `NAME+CORRUPTION:SEVERITY` selects one part of a corrupted data set, or corrupts a clean one on the fly.
    """
    name = fspath(spec)
    parts = load_parts(name, seed=seed)
    if len(parts) > 1:
        raise ConfigError(
            f"{name}: expected one part, got {len(parts)}: name one, like {name.partition('+')[0]}+fog:5"
        )
    return parts[0]


def load_parts(
    spec: str,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] | None = None,
    seed: int = 0,
) -> list[Dataset]:
    """Load one data set per corruption and severity, or the clean one if none is asked for.

    A corrupted data set defaults to its test corruptions at all severities.
    """
    name, shift = _split_spec(spec)
    if shift and (corruptions is not None or severities is not None):
        raise ConfigError(
            f"{spec}: already names a corruption: remove +{shift}, or pass no corruptions and severities"
        )
    if shift:
        corruptions, severities = _parse_shift(spec, shift)
    check_corruptions(corruptions or ())
    for severity in severities or ():
        if severity not in SEVERITIES:
            raise ConfigError(f"severity: expected 1..5, got {severity}")
    entry, path = _find(name)
    shifts = [(c, s) for c in corruptions or entry.corruptions for s in severities or SEVERITIES]
    if entry.open_part is not None:
        return [entry.open_part(path, corruption, severity) for corruption, severity in shifts]
    assert entry.open_clean is not None
    clean = entry.open_clean(path)
    if corruptions is None and severities is None:
        return [clean]
    return [corrupted(clean, corruption, severity, seed) for corruption, severity in shifts]


def locate(spec: str) -> tuple[str, list[Path]]:
    """Return the spec with an absolute path, and the paths on disk that it reads (none if bundled)."""
    name, shift = _split_spec(spec)
    entry, path = _find(name)
    if name in CATALOG:
        return spec, [path] if entry.folder_name else []
    suffix = f"+{shift}" if shift else ""
    if not name.startswith(PREFIX):
        # A pattern is no path, but its folder is.
        return f"{path.absolute()}{suffix}", [path.absolute() if path.exists() else path.absolute().parent]
    if not path.is_dir():
        return spec, []
    return f"{parse_spec(name).absolute()}{suffix}", [path.absolute()]


def _split_spec(spec: str) -> tuple[str, str]:
    """Split NAME+SHIFT at the last plus sign; the shift is empty if there is none."""
    name, plus, shift = ("", "", "") if Path(spec).exists() else spec.rpartition("+")
    return (name, shift) if plus else (spec, "")


def _parse_shift(spec: str, shift: str) -> tuple[list[str], list[int] | None]:
    """Parse CORRUPTION or CORRUPTION:SEVERITY."""
    corruption, colon, severity = shift.partition(":")
    if colon and not severity.isdecimal():
        raise ConfigError(f"{spec}: expected a severity 1..5 after the colon, got {severity!r}")
    return [corruption], [int(severity)] if colon else None


def _find(name: str) -> tuple[CatalogEntry, Path]:
    """Return the entry for a name or a path, and where its files are."""
    if name in CATALOG:
        entry = CATALOG[name]
        path = entry.folder()
        if entry.folder_name and not path.is_dir():
            raise DataError(f"{name}: not found in {path}: get it with `memo data get {entry.folder_name}`")
        return entry, path
    if name.startswith(PREFIX):
        chosen = parse_spec(name)
        return CatalogEntry("", "", open_clean=lambda _: open_hub(chosen)), chosen.folder
    path = Path(name).expanduser()
    if (entry := find_reader(path)) is not None:
        return entry, path
    if path.suffix or path.parent != Path():
        raise DataError(f"{name}: no such file or folder, and not the name of a data set")
    raise unknown_name("data set", name, [*CATALOG, "a path", "hfds:NAME"])
