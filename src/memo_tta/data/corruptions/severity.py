"""Names, severities and constants of the corruptions, as published (Hendrycks & Dietterich, 2019)."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from memo_tta.registry import Registry, unknown_name

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
# Not published: made for choosing restorations (docs/corruptions.md). Nothing takes them unless named.
OWN_VALIDATION = (
    "haze",
    "colour_cast",
    "low_light",
    "line_blur",
    "mosaic",
    "dct_blocks",
    "jitter",
)
NAMED = CORRUPTIONS + OWN_VALIDATION  # all that can be asked for by name

MAX_SMALL_SIDE = 64  # pixels; larger images get ImageNet-C's constants

Constants = tuple[Any, ...]  # the arguments of a corruption after (image, rng)
SeverityTable = tuple[Constants, ...]  # for severities 1..5


def check_corruptions(names: Iterable[str]) -> None:
    """Raise for a name that is not a corruption."""
    for name in names:
        if name not in NAMED:
            raise unknown_name("corruption", name, NAMED)


def is_small(image: np.ndarray) -> bool:
    """Return whether the image is corrupted with the constants of CIFAR-10-C."""
    return max(image.shape[:2]) <= MAX_SMALL_SIDE


def constants(image: np.ndarray, name: str, severity: int) -> Constants:
    """Return the constants of a corruption at a severity, for an image of this size."""
    if name in OWN_VALIDATION:
        return (OWN_SMALL if is_small(image) else OWN_LARGE)[name][severity - 1]
    return (CIFAR if is_small(image) else IMAGENET)[name][severity - 1]


def _single(*values: float) -> SeverityTable:
    """Return the table of a corruption with one constant."""
    return tuple((value,) for value in values)


def _zoom_factors(*steps: tuple[float, int]) -> SeverityTable:
    """Return the zoom factors 1, 1 + step, ... for each (step, count).

    Rounds as numpy.arange does, which decides whether 1.25 times 26 pixels are 32 or 33.
    """
    return tuple((tuple((1 + index * ((1 + step) - 1)) for index in range(count)),) for step, count in steps)


def _table(rows: Mapping[str, SeverityTable]) -> Registry[SeverityTable]:
    return Registry("corruption", {name: rows[name] for name in CORRUPTIONS})


CIFAR = _table(
    {
        "gaussian_noise": _single(0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": _single(500, 250, 100, 75, 50),
        "impulse_noise": _single(0.01, 0.02, 0.03, 0.05, 0.07),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": _zoom_factors((0.01, 7), (0.01, 12), (0.01, 16), (0.01, 21), (0.01, 26)),
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
        "zoom_blur": _zoom_factors((0.01, 12), (0.01, 16), (0.02, 11), (0.02, 13), (0.03, 11)),
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
        # Multiples of 244: the published code has this typo for 224.
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

OWN_SMALL: dict[str, SeverityTable] = {
    "haze": _single(0.3, 0.6, 0.9, 1.3, 1.8),
    "colour_cast": _single(0.2, 0.35, 0.5, 0.6, 0.7),
    "low_light": (
        (0.7, 1.1, 0.002),
        (0.5, 1.2, 0.003),
        (0.35, 1.3, 0.004),
        (0.25, 1.4, 0.005),
        (0.18, 1.5, 0.006),
    ),
    "line_blur": _single(1.5, 2.5, 3.5, 4.5, 5.5),
    "mosaic": _single(1.15, 1.3, 1.45, 1.6, 1.8),
    "dct_blocks": _single(6, 9, 13, 18, 24),
    "jitter": ((0.3, 0.4), (0.45, 0.4), (0.6, 0.4), (0.75, 0.45), (0.9, 0.5)),
}
OWN_LARGE: dict[str, SeverityTable] = {
    **{name: OWN_SMALL[name] for name in ("haze", "colour_cast", "low_light", "dct_blocks")},
    "line_blur": _single(5, 9, 13, 18, 24),
    "mosaic": _single(2, 2.7, 3.5, 4.4, 5.5),
    "jitter": ((0.8, 0.5), (1.4, 0.7), (2, 0.9), (2.8, 1.2), (3.6, 1.5)),
}


class CorruptionLevel(NamedTuple):
    """A corruption at a severity of 1 to 5; clean data has neither ("" and 0)."""

    corruption: str
    severity: int
