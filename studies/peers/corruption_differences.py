"""The corruptions of imagecorruptions beside ours: python -m studies.peers.corruption_differences --help.

The bundled images are enlarged to 224 pixels, for which both use the constants of ImageNet-C. Prints JSON.
"""

import io
import json
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from statistics import median
from time import process_time
from typing import Any

import click
import numpy as np
from PIL import Image

import memo_tta as mt
from studies.peers.checks import describe

Corrupt = Callable[[np.ndarray], np.ndarray]

IMAGES, LEVELS = 10, (3, 5)
TURNS = 2  # in which each image is corrupted by both
LARGE, SMALL = 224, 32  # pixels


def pictures(size: int) -> list[np.ndarray]:
    """Return the first bundled images at a size."""
    images = mt.load_dataset("sample").images
    found = (Image.fromarray(np.asarray(images[position])) for position in range(IMAGES))
    return [np.asarray(image.resize((size, size), Image.Resampling.BICUBIC)) for image in found]


def compare(theirs: Corrupt, ours: Corrupt, images: list[np.ndarray]) -> dict[str, Any]:
    """Return how far two corruptions change images and differ, and the ratio of their processor times."""
    try:
        random = not np.array_equal(theirs(images[0]), theirs(images[0]))
    except Exception as error:
        return {"error": describe(error), "ours": float(np.mean([change(ours(x), x) for x in images]))}
    ours(images[0])
    rows = [_compare_image(theirs, ours, image) for _ in range(TURNS) for image in images]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        "random": random,
        "largest": max(columns["largest"]),
        "theirs": float(np.mean(columns["theirs"])),
        "ours": float(np.mean(columns["ours"])),
        "time": median(columns["time"]),
    }


def change(corrupted: np.ndarray, image: np.ndarray) -> float:
    """Return the mean absolute difference of two images, in 255 levels."""
    return float(np.abs(corrupted.astype(int) - image).mean())


def _compare_image(theirs: Corrupt, ours: Corrupt, image: np.ndarray) -> dict[str, float]:
    start = process_time()
    a = theirs(image)
    between = process_time()
    b = ours(image)
    end = process_time()
    return {
        "largest": int(np.abs(a.astype(int) - b).max()),
        "theirs": change(a, image),
        "ours": change(b, image),
        "time": (end - between) / (between - start),
    }


@click.command(help=__doc__)
def main() -> None:
    import_module("cv2").setNumThreads(1)
    np.random.seed(0)  # imagecorruptions draws from the global generator
    theirs, found = import_module("imagecorruptions"), {}
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in (LARGE, SMALL):
            images = pictures(size)
            for name in theirs.get_corruption_names("all"):
                for level in LEVELS:
                    found[f"{size} {name} {level}"] = compare(
                        lambda x, n=name, s=level: theirs.corrupt(x, corruption_name=n, severity=s),
                        lambda x, n=name, s=level: mt.corrupt(x, n, s),
                        images,
                    )
    click.echo(json.dumps(found))


if __name__ == "__main__":
    main()
