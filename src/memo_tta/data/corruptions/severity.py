"""How strong each corruption is at each level: the published constants (Hendrycks & Dietterich, 2019)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from memo_tta.registry import Registry

SEVERITIES = (1, 2, 3, 4, 5)

TEST = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
VALIDATION = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
CORRUPTIONS = TEST + VALIDATION

# Up to this side an image counts as small: CIFAR's constants; above, ImageNet's.
SMALL_UP_TO = 64

Constants = tuple[Any, ...]  # what follows (image, rng) in the call of an operation
Levels = tuple[Constants, ...]


def is_small(image: np.ndarray) -> bool:
    return max(image.shape[:2]) <= SMALL_UP_TO


def constants(image: np.ndarray, name: str, severity: int) -> Constants:
    """The constants of a corruption for an image of this size."""
    return (CIFAR if is_small(image) else IMAGENET)[name][severity - 1]


def _single(*levels: float) -> Levels:
    return tuple((level,) for level in levels)


def _zooms(*levels: tuple[float, int]) -> Levels:
    """Each level is (step, count): factors 1, 1 + step, ...

    With the rounding of numpy.arange, which decides whether 1.25 times 26 pixels are 32 or 33.
    """
    return tuple((tuple((1 + index * ((1 + step) - 1)) for index in range(count)),) for step, count in levels)


def _table(rows: Mapping[str, Levels]) -> Registry[Levels]:
    return Registry("corruption", {name: rows[name] for name in CORRUPTIONS})


CIFAR = _table(
    {
        "gaussian_noise": _single(0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": _single(500, 250, 100, 75, 50),
        "impulse_noise": _single(0.01, 0.02, 0.03, 0.05, 0.07),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": _zooms((0.01, 7), (0.01, 12), (0.01, 16), (0.01, 21), (0.01, 26)),
        "snow": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "brightness": _single(0.05, 0.1, 0.15, 0.2, 0.3),
        "contrast": _single(0.75, 0.5, 0.4, 0.3, 0.15),
        "elastic_transform": (
            (0, 0, 2.56),
            (1.6, 6.4, 2.24),
            (2.56, 1.92, 1.92),
            (3.2, 1.28, 1.6),
            (3.2, 0.96, 0.96),
        ),
        "pixelate": _single(0.95, 0.9, 0.85, 0.75, 0.65),
        "jpeg_compression": _single(80, 65, 58, 50, 40),
        "speckle_noise": _single(0.06, 0.1, 0.12, 0.16, 0.2),
        "gaussian_blur": _single(0.4, 0.6, 0.7, 0.8, 1),
        "spatter": (
            (0.62, 0.1, 0.7, 0.7, 0.5, False),
            (0.65, 0.1, 0.8, 0.7, 0.5, False),
            (0.65, 0.3, 1, 0.69, 0.5, False),
            (0.65, 0.1, 0.7, 0.69, 0.6, True),
            (0.65, 0.1, 0.5, 0.68, 0.6, True),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    }
)

IMAGENET = _table(
    {
        "gaussian_noise": _single(0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": _single(60, 25, 12, 5, 3),
        "impulse_noise": _single(0.03, 0.06, 0.09, 0.17, 0.27),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": _zooms((0.01, 12), (0.01, 16), (0.02, 11), (0.02, 13), (0.03, 11)),
        "snow": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        "brightness": _single(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _single(0.4, 0.3, 0.2, 0.1, 0.05),
        # Multiples of 244, a slip for 224 that the published images carry.
        "elastic_transform": (
            (488, 170.8, 24.4),
            (488, 19.52, 48.8),
            (12.2, 2.44, 4.88),
            (17.08, 2.44, 4.88),
            (29.28, 2.44, 4.88),
        ),
        "pixelate": _single(0.6, 0.5, 0.4, 0.3, 0.25),
        "jpeg_compression": _single(25, 18, 15, 10, 7),
        "speckle_noise": _single(0.15, 0.2, 0.35, 0.45, 0.6),
        "gaussian_blur": _single(1, 2, 3, 4, 6),
        "spatter": (
            (0.65, 0.3, 4, 0.69, 0.6, False),
            (0.65, 0.3, 3, 0.68, 0.6, False),
            (0.65, 0.3, 2, 0.68, 0.5, False),
            (0.65, 0.3, 1, 0.65, 1.5, True),
            (0.67, 0.4, 1, 0.65, 1.5, True),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    }
)


class CorruptionLevel(NamedTuple):
    """A corruption at a severity of 1 to 5; clean data has neither ("" and 0)."""

    corruption: str
    severity: int
