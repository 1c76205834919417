"""The sample images that the page offers: the operator's own, or the bundled ones if the model knows them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from stat import S_ISREG

import numpy as np

from memo_tta.class_lists import class_list
from memo_tta.data.formats.folder import is_image_name
from memo_tta.data.sample_images import load_sample
from memo_tta.errors import ConfigError, InputError
from memo_tta.service.api_errors import ApiError
from memo_tta.service.uploaded_image import PixelLimits, UploadedImage

MAX_SAMPLES = 12


@dataclass(frozen=True)
class SampleImage:
    """An image and its name: its class or, without one, its file's name."""

    name: str
    image: np.ndarray  # uint8 (height, width, 3)


def find_samples(
    labels: Sequence[str] | None, folder: Path | None, max_bytes: int, limits: PixelLimits
) -> list[SampleImage]:
    """Return the images of the operator's folder; without it, CIFAR-10's if the labels are the same."""
    if folder is not None:
        return _read_folder(folder, max_bytes, limits)
    is_cifar = labels is not None and {label.lower() for label in labels} == set(class_list("cifar10"))
    return _bundled() if is_cifar else []


def _bundled() -> list[SampleImage]:
    """Return the first bundled image of each class."""
    dataset, first = load_sample(), dict[str, np.ndarray]()
    for _, image, target in dataset:
        first.setdefault(dataset.labels[target], image)
    return [SampleImage(label, first[label]) for label in sorted(first)]


def _read_folder(folder: Path, max_bytes: int, limits: PixelLimits) -> list[SampleImage]:
    """Read a few images of a folder, spread over its sub-folders; a client may send any of them as well."""
    try:
        chosen = _choose(folder)
        if not chosen:
            raise ConfigError(
                f"{folder}: expected images, or a sub-folder of images per class, found none: "
                "choose another folder of samples"
            )
        return [SampleImage(name, _read(path, max_bytes, limits)) for name, path in chosen]
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder}: cannot be read as a sample ({error.strerror})"
        ) from None


def _choose(folder: Path) -> list[tuple[str, Path]]:
    """Return names and paths of a few images: the first of each class, then the second of each, ..."""
    visible = [path for path in folder.iterdir() if path.name[0] != "."]
    classes = _spread(sorted(path for path in visible if path.is_dir()))
    groups = [[(path.stem, path) for path in _spread(_images(visible))]]
    groups += [[(one.name, path) for path in _spread(_images(one.iterdir()))] for one in classes]
    rounds = zip_longest(*groups)
    return [found for each in rounds for found in each if found is not None][:MAX_SAMPLES]


def _images(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if is_image_name(path.name) and not path.is_dir())


def _spread(paths: Sequence[Path]) -> list[Path]:
    """Return at most MAX_SAMPLES of the paths, evenly spaced."""
    count = min(len(paths), MAX_SAMPLES)
    return [paths[index * len(paths) // count] for index in range(count)]


def _read(path: Path, max_bytes: int, limits: PixelLimits) -> np.ndarray:
    """Read an image within the limits of a request."""
    if not S_ISREG(path.stat().st_mode):
        raise ConfigError(f"{path}: expected an image file, got something else: remove it from the samples")
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ConfigError(
            f"{path}: has more than the {max_bytes / 2**20:g} MiB that a request may have: "
            "make it smaller, or remove it from the samples"
        )
    try:
        return UploadedImage(data, limits).decode(lambda: None)
    except (ApiError, InputError) as error:
        problem = str(error).removeprefix("image: ")
        raise ConfigError(f"{path}: cannot be a sample: {problem.rstrip('.')}") from None
