"""The 19 corruptions of CIFAR-10-C and ImageNet-C (Hendrycks & Dietterich, 2019), for one image."""

import numpy as np

from memo_tta.data.corruptions.severity import CORRUPTIONS, SEVERITIES, TEST, VALIDATION, constants
from memo_tta.errors import ConfigError, InputError, MissingExtra

__all__ = ["CORRUPTIONS", "SEVERITIES", "TEST", "VALIDATION", "corrupt"]

SMALLEST_SIDE = 8


def corrupt(image: np.ndarray, name: str, severity: int, rng: np.random.Generator) -> np.ndarray:
    """The image, uint8 (height, width, 3), spoilt at a severity of 1..5; the image itself stays.

    Up to 64 pixels the constants are those of CIFAR-10-C, above those of ImageNet-C.
    """
    if severity not in SEVERITIES:
        raise ConfigError(f"severity: expected 1..5, got {severity!r}")
    _check(image)
    parameters = constants(image, name, int(severity))
    # Only here are OpenCV and SciPy needed, so that the names above do without.
    try:
        from memo_tta.data.corruptions.operations import OPERATIONS
    except ImportError as error:
        raise MissingExtra(
            f"corruptions need OpenCV and SciPy ({error}): pip install 'memo-tta[corruptions]'"
        ) from None
    return OPERATIONS[name](image, rng, *parameters)


def _check(image: np.ndarray) -> None:
    if not isinstance(image, np.ndarray):
        raise InputError(f"image: expected a uint8 array (height, width, 3), got {type(image).__name__}")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InputError(f"image: expected a uint8 array (height, width, 3), got {image.dtype} {image.shape}")
    if min(image.shape[:2]) < SMALLEST_SIDE:
        raise InputError(
            f"image: expected at least {SMALLEST_SIDE} pixels a side, got {image.shape[1]} x {image.shape[0]}"
        )
