"""Memory to read ImageNet-C: it does not grow with the number of files."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from memo_tta.bench.measurement import Measurement, in_new_process, peak_kib
from memo_tta.class_lists import class_list
from memo_tta.data.formats.imagenet import open_imagenet_c

FEW, MANY, CLASSES = 100, 10_000, 10
BAR = 16  # MiB; one image is 0.14


def run() -> Iterator[Measurement]:
    few, many = (in_new_process("memo_tta.bench.loading", count) for count in (FEW, MANY))
    yield Measurement(
        f"extra memory to read {MANY:,} files instead of {FEW}",
        (many - few) / 2**10,
        BAR,
        "MiB",
        f"ImageNet-C's layout, 224 pixels: peaks {many / 2**10:.0f} and {few / 2**10:.0f} MiB",
    )


def peak_after_reading(count: int) -> int:
    """Return the peak memory of this process in KiB after reading this many files."""
    with TemporaryDirectory() as folder:
        write_files(Path(folder), count)
        read = sum(len(image) > 0 for _, image, _ in open_imagenet_c(Path(folder), "fog", 1))
    assert read == count
    return peak_kib()


def write_files(folder: Path, count: int) -> None:
    """Write one image under many names, in ImageNet-C's layout."""
    rng = np.random.default_rng(0)
    picture = folder / "picture.JPEG"
    Image.fromarray(rng.integers(0, 256, (224, 224, 3), dtype=np.uint8)).save(picture)
    for position in range(count):
        path = folder / "fog" / "1" / class_list("imagenet-wnids")[position % CLASSES] / f"{position}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(picture, path)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(peak_after_reading(int(sys.argv[1]))))
