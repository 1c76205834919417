"""Write corrupted copies of a data set: CIFAR-10-C's layout for arrays, ImageNet-C's for image files."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from memo_tta import __version__
from memo_tta.data.catalog import load_dataset, locate
from memo_tta.data.corrupted_dataset import corrupted, crop_like_imagenet_c
from memo_tta.data.corruptions.frost import frost_pictures, frost_source
from memo_tta.data.corruptions.severity import CORRUPTIONS, SEVERITIES
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.cifar import METADATA_FILE, N_SEVERITIES, read_metadata
from memo_tta.data.formats.folder import FolderImages
from memo_tta.errors import ConfigError, DataError, InputError
from memo_tta.files import atomic_file, remove_partial_files
from memo_tta.workers import Engine
from memo_tta.workers.environment import environment

ARRAY_BATCH, FILE_BATCH = 250, 16  # images per work item of a worker
JPEG_QUALITY = 85  # as in ImageNet-C
NOT_IN_FOLDER_NAMES = re.compile(r"[/\\\0]|^\.+")

OnImages = Callable[[int, int], None]  # images so far, images in total


@dataclass(frozen=True)
class CorruptionJob:
    """Which data set to corrupt, how, and where to write the copies."""

    spec: str
    out: Path
    corruptions: Sequence[str] = CORRUPTIONS
    seed: int = 0
    skip_bad: bool = False


@dataclass(frozen=True)
class CorruptionBatch:
    """Consecutive images of the job's data set, at one corruption and severity."""

    job: CorruptionJob
    corruption: str
    severity: int
    positions: range

    def dataset(self) -> Dataset:
        """Return the whole corrupted data set."""
        return corrupted(_load(self.job.spec), self.corruption, self.severity, self.job.seed)


@cache
def _load(spec: str) -> Dataset:
    return load_dataset(spec)


def generate(job: CorruptionJob, engine: Engine[Any, Any], on_images: OnImages) -> list[str]:
    """Write the copies that are missing; return the reason for each image that was skipped."""
    spec, paths = locate(job.spec)
    job = replace(job, spec=spec, out=job.out.absolute())
    dataset = load_dataset(job.spec)
    if dataset.corruption:
        raise ConfigError(f"{job.spec}: is already corrupted: name the clean data set")
    if "frost" in job.corruptions:
        frost_pictures()  # warn once, here, if the published photographs are not installed
    remove_partial_files(job.out)
    _write_metadata(job, dataset)
    facts = {"frost": frost_source}
    if isinstance(dataset.images, np.ndarray):
        engine.check_nodes(partial(environment, paths, facts))
        _write_arrays(job, dataset, engine, on_images)
        return []
    engine.check_nodes(partial(environment, [*paths, job.out], facts))  # the workers write to job.out
    return _write_folders(job, dataset, engine, on_images)


def _write_metadata(job: CorruptionJob, dataset: Dataset) -> None:
    """Store the settings that determine the copies; raise if the folder was made with others."""
    metadata = {
        "dataset": f"{dataset.name}-c",
        "points": len(dataset),
        "seed": job.seed,
        "frost": frost_source(),
        "made_by": f"memo-tta {__version__}",
        "labels": list(dataset.labels),
    }
    path = job.out / METADATA_FILE
    if path.exists():
        found = read_metadata(path)
        differ = [f"{key} was {found.get(key)!r}" for key in metadata if found.get(key) != metadata[key]]
        if differ:
            raise ConfigError(
                f"{job.out}: was made with other settings ({'; '.join(differ)}): use another --out"
            )
        return
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(metadata, indent=1) + "\n", "utf-8")


def _batches(job: CorruptionJob, corruptions: Sequence[str], count: int, size: int) -> list[CorruptionBatch]:
    return [
        CorruptionBatch(job, corruption, severity, range(start, min(start + size, count)))
        for corruption in corruptions
        for severity in SEVERITIES
        for start in range(0, count, size)
    ]


def _write_arrays(
    job: CorruptionJob, dataset: Dataset, engine: Engine[Any, Any], on_images: OnImages
) -> None:
    """Write labels.npy, and one .npy file per corruption with its five severities in a row."""
    with atomic_file(job.out / "labels.npy") as temporary, temporary.open("wb") as file:
        np.save(file, np.tile(dataset.targets, N_SEVERITIES))
    shape = (N_SEVERITIES * len(dataset), *crop_like_imagenet_c(dataset[0].image).shape)
    missing = [name for name in job.corruptions if not (job.out / f"{name}.npy").exists()]
    batches = _batches(job, missing, len(dataset), ARRAY_BATCH)
    done, total = 0, len(missing) * shape[0]
    with closing(engine.ordered_results(corrupt_batch, batches)) as results:
        for name in missing:
            with atomic_file(job.out / f"{name}.npy") as temporary, temporary.open("wb") as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                for images in islice(results, len(batches) // len(missing)):
                    file.write(images.tobytes())
                    done += len(images)
                    on_images(done, total)


def corrupt_batch(batch: CorruptionBatch) -> np.ndarray:
    """Return the corrupted images, uint8 (n, height, width, 3)."""
    dataset = batch.dataset()
    return np.stack([dataset[position].image for position in batch.positions])


def _write_folders(
    job: CorruptionJob, dataset: Dataset, engine: Engine[Any, Any], on_images: OnImages
) -> list[str]:
    """Write CORRUPTION/SEVERITY/CLASS/NAME.JPEG for every image; return the reasons for skipped ones."""
    names = Counter(_jpeg_name(dataset, position) for position in range(len(dataset)))
    name, times = names.most_common(1)[0]
    if times > 1:
        raise DataError(f"{job.spec}: {times} images would become {name}: rename all but one")
    batches = _batches(job, job.corruptions, len(dataset), FILE_BATCH)
    done, total = 0, len(dataset) * N_SEVERITIES * len(job.corruptions)
    skipped: dict[str, None] = {}  # an ordered set: each image fails once per corruption and severity
    with closing(engine.ordered_results(write_batch, batches)) as results:
        for batch, reasons in zip(batches, results, strict=True):
            done += len(batch.positions)
            skipped.update(dict.fromkeys(reasons))
            on_images(done, total)
    return list(skipped)


def write_batch(batch: CorruptionBatch) -> list[str]:
    """Write the files of the batch that are missing; return the reason for each image that was skipped."""
    clean, dataset, skipped = _load(batch.job.spec), batch.dataset(), list[str]()
    folder = batch.job.out / batch.corruption / str(batch.severity)
    for position in batch.positions:
        path = folder / _jpeg_name(clean, position)
        if path.exists():
            continue
        try:
            image = dataset[position].image
        except InputError as error:
            if not batch.job.skip_bad:
                raise InputError(f"{error} (--skip-bad leaves such images out)") from None
            skipped.append(str(error))
            continue
        with atomic_file(path) as temporary:
            Image.fromarray(image).save(temporary, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return skipped


def _jpeg_name(dataset: Dataset, position: int) -> str:
    """Return CLASS/NAME.JPEG for an image of the clean data set."""
    if isinstance(dataset.images, FolderImages):
        return str(Path(str(dataset.id(position))).with_suffix(".JPEG"))
    label = NOT_IN_FOLDER_NAMES.sub("_", dataset.labels[int(dataset.targets[position])])
    return f"{label}/{position:06}.JPEG"
