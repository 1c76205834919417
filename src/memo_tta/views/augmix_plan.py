"""Draw the random part of views (crops, flips, operations, levels and weights) as plain arrays.

A plan holds everything that is random about a set of views, so that every execution of it, on any device,
gives the same pixels.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from memo_tta.image import Size, height_and_width

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
FILL = (128, 0, 0, 0)  # of as many channels as there are
NO_NORMALISATION = (0.0,), (1.0,)  # mean and std that leave views in 0..1

# Severity 1 of the published code: a level u from 0.1 to 1 scales each maximum by u / 10.
LEVELS = (0.1, 1.0)


class Scale(NamedTuple):
    """How a level changes an operation's parameter: from `start` up or down, by at most `maximum` / 10."""

    start: float = 0
    maximum: float = 0
    is_relative: bool = False  # the maximum is a fraction of the image's size
    is_integer: bool = True
    is_decrease: bool = False  # the parameter never goes up


SCALES = {
    "rotate": Scale(maximum=30),
    "solarize": Scale(start=256, maximum=256, is_decrease=True),
    "shear_x": Scale(maximum=0.3, is_integer=False),
    "shear_y": Scale(maximum=0.3, is_integer=False),
    "translate_x": Scale(maximum=1 / 3, is_relative=True),
    "translate_y": Scale(maximum=1 / 3, is_relative=True),
    "posterize": Scale(start=4, maximum=4, is_decrease=True),
}
# One row per operation, and a last one for the index NO_OPERATION.
SCALE_ROWS = np.array([SCALES.get(name, Scale()) for name in (*OPERATIONS, "none")])

# Random resized crops: fraction of the image's area, and aspect ratio.
CROP_AREA = (0.08, 1.0)
MILD_CROP_AREA = (0.8, 1.0)  # not the published code's: the object stays in the view
CROP_ASPECT = (3 / 4, 4 / 3)
CROP_TRIES = 10
# The R2 sequence (Roberts, 2018): negative powers of the root of x³ = x + 1, the plane's golden ratio.
R2_STEP = 1.324717957244746 ** np.array([-1.0, -2.0])


@dataclass(frozen=True)
class CropPlan:
    """The box that each of n views is cropped from, and whether the view is flipped."""

    box: np.ndarray  # int, (n, 4): top, left, height, width
    flip: np.ndarray  # bool, (n,)

    def __len__(self) -> int:
        return len(self.flip)


@dataclass(frozen=True)
class AugMixPlan:
    """Everything random about n AugMix views; `operations` holds indices of OPERATIONS, or NO_OPERATION."""

    crops: CropPlan
    operations: np.ndarray  # int, (n, WIDTH, MAX_DEPTH)
    parameters: np.ndarray  # float64, (n, WIDTH, MAX_DEPTH): degrees, threshold, factor, pixels, bits
    weights: np.ndarray  # float32, (n, WIDTH): weights of the chains, summing to 1
    keep: np.ndarray  # float32, (n,): weight of the crop itself, without any operation

    def __len__(self) -> int:
        return len(self.crops)


def plan_augmix(crops: CropPlan, size: Size, rng: np.random.Generator) -> AugMixPlan:
    """Draw the chains of views that are cropped to `size`."""
    n = len(crops)
    weights = rng.dirichlet((1.0,) * WIDTH, size=n).astype(np.float32)
    keep = rng.beta(1.0, 1.0, size=n).astype(np.float32)
    depth = rng.integers(1, MAX_DEPTH + 1, size=(n, WIDTH, 1))
    operations = rng.integers(len(OPERATIONS), size=(n, WIDTH, MAX_DEPTH))
    operations[np.arange(MAX_DEPTH) >= depth] = NO_OPERATION
    level = rng.uniform(*LEVELS, size=operations.shape)
    negative = rng.random(operations.shape) < 0.5
    return AugMixPlan(crops, operations, _parameters(operations, level, negative, size), weights, keep)


def _parameters(operations: np.ndarray, level: np.ndarray, negative: np.ndarray, size: Size) -> np.ndarray:
    """Return levels in the unit of each operation; integers are truncated, as in the published code."""
    start, maximum, is_relative, is_integer, is_decrease = SCALE_ROWS.T
    height, width = height_and_width(size)
    side = np.array([height if name.endswith("_y") else width for name in (*OPERATIONS, "none")])
    amount = level * np.where(is_relative, side * maximum, maximum)[operations] / 10
    amount = np.where(is_integer[operations], np.trunc(amount), amount)
    return start[operations] + np.where(negative | (is_decrease[operations] > 0), -amount, amount)


def plan_padded_crops(size: Size, padding: Size, n: int, rng: np.random.Generator) -> CropPlan:
    """Draw crops of `size` from an image padded on every side; half of them are flipped."""
    # Of one bound, numpy draws other numbers than of two equal ones.
    corner = rng.integers(0, 2 * np.asarray(padding) + 1, size=(n, 2))
    box = np.concatenate([corner, np.full((n, 2), height_and_width(size))], axis=1)
    return CropPlan(box, rng.random(n) < 0.5)


def plan_even_crops(size: Size, padding: Size, n: int, rng: np.random.Generator) -> CropPlan:
    """Draw padded crops that are spread evenly over the shifts, every other one flipped.

    An average over them has less variance than over independent crops. They are points of a low-discrepancy
    sequence from a random start, so the first views do not depend on n.
    """
    start, first_flip = rng.random(2), int(rng.integers(2))
    position = (start + np.arange(n)[:, None] * R2_STEP) % 1
    corner = (position * (2 * np.array(height_and_width(padding)) + 1)).astype(int)
    box = np.concatenate([corner, np.full((n, 2), height_and_width(size))], axis=1)
    return CropPlan(box, (np.arange(n) + first_flip) % 2 == 1)


def plan_resized_crops(
    height: int,
    width: int,
    n: int,
    rng: np.random.Generator,
    area: tuple[float, float] = CROP_AREA,
    aspect: float = 1.0,
) -> CropPlan:
    """Draw crops of random area, to be resized to this width per height; half of them are flipped."""
    bounds = (aspect * CROP_ASPECT[0], aspect * CROP_ASPECT[1])
    box = np.array([_resized_crop(height, width, area, bounds, rng) for _ in range(n)]).reshape(n, 4)
    return CropPlan(box, rng.random(n) < 0.5)


def _resized_crop(
    height: int,
    width: int,
    fractions: tuple[float, float],
    aspects: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[int, int, int, int]:
    for _ in range(CROP_TRIES):
        area = height * width * rng.uniform(*fractions)
        aspect = math.exp(rng.uniform(math.log(aspects[0]), math.log(aspects[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top, left = rng.integers(height - h + 1), rng.integers(width - w + 1)
            return int(top), int(left), h, w
    # No crop fits, as for very long images: take the centre, with the nearest allowed aspect ratio.
    w = min(width, max(1, round(height * aspects[1])))
    h = min(height, max(1, round(width / aspects[0])))
    return (height - h) // 2, (width - w) // 2, h, w
