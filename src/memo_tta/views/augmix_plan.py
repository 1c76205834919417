"""Sample how views are made: crops, flips, operations, levels and weights, as plain arrays.

A plan says everything that is random about a set of views, so that every execution of it, on any
device, gives the same pictures.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

OPERATIONS = (
    "autocontrast",
    "equalize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "posterize",
)
WIDTH = 3  # chains of operations per view
MAX_DEPTH = 3  # operations per chain
NO_OPERATION = -1
# The published code fills with the integer 128, which Pillow reads as packed RGB: dark red.
FILL = (128, 0, 0)
UNCHANGED = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)  # the mean and deviation of views in 0..1

# Severity 1 of the published code: a level u from 0.1 to 1 scales each maximum by u / 10.
LEVELS = (0.1, 1.0)


class Scale(NamedTuple):
    """What levels do to an operation's parameter: from `start` up or down, by at most `maximum` / 10."""

    start: float = 0
    maximum: float = 0
    of_size: bool = False  # the maximum is a share of the image's size
    is_whole: bool = True
    only_down: bool = False


SCALES = {
    "rotate": Scale(maximum=30),
    "solarize": Scale(start=256, maximum=256, only_down=True),
    "shear_x": Scale(maximum=0.3, is_whole=False),
    "shear_y": Scale(maximum=0.3, is_whole=False),
    "translate_x": Scale(maximum=1 / 3, of_size=True),
    "translate_y": Scale(maximum=1 / 3, of_size=True),
    "posterize": Scale(start=4, maximum=4, only_down=True),
}
# One row per operation, and a last one that NO_OPERATION finds.
SCALE_ROWS = np.array([SCALES.get(name, Scale()) for name in (*OPERATIONS, "none")])

# The random resized crop: share of the image's area, and aspect ratio.
CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)
CROP_TRIES = 10
# Powers of the root of x³ = x + 1, the golden ratio of the plane.
EVEN_STEP = 1.324717957244746 ** np.array([-1.0, -2.0])


@dataclass(frozen=True)
class CropPlan:
    """Where each of n views is cut from, and whether it is mirrored."""

    box: np.ndarray  # int, (n, 4): top, left, height, width
    flip: np.ndarray  # bool, (n,)

    def __len__(self) -> int:
        return len(self.flip)


@dataclass(frozen=True)
class AugMixPlan:
    """The whole recipe of n AugMix views; `operations` indexes OPERATIONS or is NO_OPERATION."""

    crops: CropPlan
    operations: np.ndarray  # int, (n, WIDTH, MAX_DEPTH)
    parameters: np.ndarray  # float64, (n, WIDTH, MAX_DEPTH): degrees, threshold, factor, pixels, bits
    weights: np.ndarray  # float32, (n, WIDTH): of the chains, summing to 1
    keep: np.ndarray  # float32, (n,): share of the cropped image that no chain has touched

    def __len__(self) -> int:
        return len(self.crops)


def plan_augmix(crops: CropPlan, size: int, rng: np.random.Generator) -> AugMixPlan:
    """Chains for views that `crops` has cut to `size` pixels square."""
    n = len(crops)
    weights = rng.dirichlet((1.0,) * WIDTH, size=n).astype(np.float32)
    keep = rng.beta(1.0, 1.0, size=n).astype(np.float32)
    depth = rng.integers(1, MAX_DEPTH + 1, size=(n, WIDTH, 1))
    operations = rng.integers(len(OPERATIONS), size=(n, WIDTH, MAX_DEPTH))
    operations[np.arange(MAX_DEPTH) >= depth] = NO_OPERATION
    level = rng.uniform(*LEVELS, size=operations.shape)
    negative = rng.random(operations.shape) < 0.5
    return AugMixPlan(crops, operations, _parameters(operations, level, negative, size), weights, keep)


def _parameters(operations: np.ndarray, level: np.ndarray, negative: np.ndarray, size: int) -> np.ndarray:
    """Levels in each operation's own unit; whole numbers are truncated, as published."""
    start, maximum, of_size, is_whole, only_down = SCALE_ROWS.T
    amount = level * np.where(of_size, size * maximum, maximum)[operations] / 10
    amount = np.where(is_whole[operations], np.trunc(amount), amount)
    return start[operations] + np.where(negative | (only_down[operations] > 0), -amount, amount)


def plan_padded_crops(size: int, padding: int, n: int, rng: np.random.Generator) -> CropPlan:
    """Crops of a `size` square after zero-padding every side, mirrored half of the time."""
    corner = rng.integers(0, 2 * padding + 1, size=(n, 2))
    box = np.concatenate([corner, np.full((n, 2), size)], axis=1)
    return CropPlan(box, rng.random(n) < 0.5)


def plan_even_crops(size: int, padding: int, n: int, rng: np.random.Generator) -> CropPlan:
    """The same, but spread evenly over the shifts, every other one mirrored: fewer of them do as well.

    Points of a sequence of low discrepancy (Roberts, 2018) from a random start: more views begin with fewer.
    """
    start, mirrored = rng.random(2), int(rng.integers(2))
    place = (start + np.arange(n)[:, None] * EVEN_STEP) % 1
    corner = (place * (2 * padding + 1)).astype(int)
    box = np.concatenate([corner, np.full((n, 2), size)], axis=1)
    return CropPlan(box, (np.arange(n) + mirrored) % 2 == 1)


def plan_resized_crops(height: int, width: int, n: int, rng: np.random.Generator) -> CropPlan:
    """Crops of random area and aspect, to be resized; mirrored half of the time."""
    box = np.array([_resized_crop(height, width, rng) for _ in range(n)]).reshape(n, 4)
    return CropPlan(box, rng.random(n) < 0.5)


def _resized_crop(height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    for _ in range(CROP_TRIES):
        area = height * width * rng.uniform(*CROP_AREA)
        aspect = math.exp(rng.uniform(math.log(CROP_ASPECT[0]), math.log(CROP_ASPECT[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top, left = rng.integers(height - h + 1), rng.integers(width - w + 1)
            return int(top), int(left), h, w
    # The image is narrower or flatter than any allowed crop: its centre, as far as aspect allows.
    w = min(width, max(1, round(height * CROP_ASPECT[1])))
    h = min(height, max(1, round(width / CROP_ASPECT[0])))
    return (height - h) // 2, (width - w) // 2, h, w
