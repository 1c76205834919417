"""Corrupted copies on disk: CIFAR-10-C's layout for arrays, ImageNet-C's for folders."""

import json
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
from memo_tta.data.corrupted_dataset import corrupted
from memo_tta.data.corruptions.frost import frost_pictures, frost_source
from memo_tta.data.corruptions.severity import CORRUPTIONS, SEVERITIES
from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.cifar import FACTS, LEVELS
from memo_tta.data.formats.folder import FileImages
from memo_tta.errors import ConfigError, DataError, InputError
from memo_tta.files import atomic_file, remove_partial_files
from memo_tta.seeding import SampleId
from memo_tta.workers import Engine
from memo_tta.workers.environment import environment

BLOCK = 250  # images a worker takes at once
FILE_BLOCK = 16
QUALITY = 85  # ImageNet-C's

Report = Callable[[int, int], None]  # images so far, images in all


@dataclass(frozen=True)
class CorruptionJob:
    """Which copies of which data set go where."""

    spec: str
    out: Path
    corruptions: Sequence[str] = CORRUPTIONS
    seed: int = 0
    skip_bad: bool = False


@dataclass(frozen=True)
class CorruptionBatch:
    """Some neighbouring points of the job's data set, at one corruption and level."""

    job: CorruptionJob
    corruption: str
    severity: int
    positions: range

    def part(self) -> Dataset:
        return corrupted(_dataset(self.job.spec), self.corruption, self.severity, self.job.seed)


@cache
def _dataset(spec: str) -> Dataset:
    return load_dataset(spec)


def generate(job: CorruptionJob, engine: Engine[Any, Any], report: Report) -> list[str]:
    """Write what is missing of the copies; the images that could not be read, with the reason."""
    spec, paths = locate(job.spec)
    job = replace(job, spec=spec, out=job.out.absolute())
    dataset = load_dataset(job.spec)
    if dataset.corruption:
        raise ConfigError(f"{job.spec}: is corrupted already: name the clean data set")
    if "frost" in job.corruptions:
        frost_pictures()  # warns here, once, if they are not the published ones
    remove_partial_files(job.out)
    _write_facts(job, dataset)
    facts = {"frost": frost_source}
    if isinstance(dataset.images, FileImages):
        engine.check_nodes(partial(environment, [*paths, job.out], facts))  # there the workers write
        return _write_folders(job, dataset, engine, report)
    engine.check_nodes(partial(environment, paths, facts))
    _write_arrays(job, dataset, engine, report)
    return []


def _write_facts(job: CorruptionJob, dataset: Dataset) -> None:
    """What decides the files; a folder that was made with anything else is refused."""
    facts = {
        "dataset": f"{dataset.name}-c",
        "points": len(dataset),
        "seed": job.seed,
        "frost": frost_source(),
        "made_by": f"memo-tta {__version__}",
        "labels": list(dataset.labels),
    }
    path = job.out / FACTS
    if path.exists():
        found = json.loads(path.read_text("utf-8"))
        differ = [f"{key} was {found.get(key)!r}" for key in facts if found.get(key) != facts[key]]
        if differ:
            raise ConfigError(f"{job.out}: was made otherwise ({'; '.join(differ)}): use another --out")
        return
    with atomic_file(path) as part:
        part.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


def _blocks(job: CorruptionJob, corruptions: Sequence[str], points: int, size: int) -> list[CorruptionBatch]:
    return [
        CorruptionBatch(job, corruption, severity, range(start, min(start + size, points)))
        for corruption in corruptions
        for severity in SEVERITIES
        for start in range(0, points, size)
    ]


def _write_arrays(job: CorruptionJob, dataset: Dataset, engine: Engine[Any, Any], report: Report) -> None:
    """One .npy file per corruption, five levels one after the other, and labels.npy."""
    with atomic_file(job.out / "labels.npy") as part, part.open("wb") as file:
        np.save(file, np.tile(dataset.targets, LEVELS))
    shape = (LEVELS * len(dataset), *dataset[0].image.shape)
    missing = [name for name in job.corruptions if not (job.out / f"{name}.npy").exists()]
    blocks = _blocks(job, missing, len(dataset), BLOCK)
    done, total = 0, len(missing) * shape[0]
    with closing(engine.ordered_results(corrupt_block, blocks)) as results:
        for name in missing:
            with atomic_file(job.out / f"{name}.npy") as part, part.open("wb") as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                for images in islice(results, len(blocks) // len(missing)):
                    file.write(images.tobytes())
                    done += len(images)
                    report(done, total)


def corrupt_block(block: CorruptionBatch) -> np.ndarray:
    part = block.part()
    return np.stack([part[position].image for position in block.positions])


def _write_folders(
    job: CorruptionJob, dataset: Dataset, engine: Engine[Any, Any], report: Report
) -> list[str]:
    """CORRUPTION/LEVEL/CLASS/NAME.JPEG for every image."""
    names = Counter(_jpeg_name(dataset.id(position)) for position in range(len(dataset)))
    name, times = names.most_common(1)[0]
    if times > 1:
        raise DataError(f"{job.spec}: {times} images would become {name}: rename all but one")
    blocks = _blocks(job, job.corruptions, len(dataset), FILE_BLOCK)
    done, total, skipped = 0, len(dataset) * LEVELS * len(job.corruptions), dict[str, None]()
    with closing(engine.ordered_results(write_block, blocks)) as results:
        for block, bad in zip(blocks, results, strict=True):
            done += len(block.positions)
            skipped.update(dict.fromkeys(bad))
            report(done, total)
    return list(skipped)


def write_block(block: CorruptionBatch) -> list[str]:
    """Write those of the block's files that are missing; the images that could not be read."""
    part, bad = block.part(), list[str]()
    folder = block.job.out / block.corruption / str(block.severity)
    for position in block.positions:
        path = folder / _jpeg_name(part.id(position))
        if path.exists():
            continue
        try:
            image = part[position].image
        except InputError as error:
            if not block.job.skip_bad:
                raise InputError(f"{error} (--skip-bad leaves such images out)") from None
            bad.append(str(error))
            continue
        with atomic_file(path) as temporary:
            Image.fromarray(image).save(temporary, "JPEG", quality=QUALITY, optimize=True)
    return bad


def _jpeg_name(sample_id: SampleId) -> str:
    return str(Path(str(sample_id)).with_suffix(".JPEG"))
