"""The 19 corruptions of CIFAR-10-C and ImageNet-C (Hendrycks & Dietterich, 2019), and validation shifts."""

import numpy as np

from memo_tta.data.corruptions.severity import (
    CORRUPTIONS,
    OWN_VALIDATION,
    SEVERITIES,
    TEST,
    VALIDATION,
    check_corruptions,
    constants,
)
from memo_tta.errors import ConfigError, InputError, MissingExtra

__all__ = [
    "CORRUPTIONS",
    "OWN_VALIDATION",
    "SEVERITIES",
    "TEST",
    "VALIDATION",
    "apply_corruption",
    "check_severity",
    "corrupt",
]

MIN_SIDE = 8


def apply_corruption(image: np.ndarray, name: str, severity: int, rng: np.random.Generator) -> np.ndarray:
    """Return a corrupted copy of a uint8 (height, width, 3) image, at a severity of 1..5.

    Images of up to 64 pixels get the constants of CIFAR-10-C, larger ones those of ImageNet-C.
    """
    severity = check_severity(severity)
    _check_image(image)
    check_corruptions([name])
    parameters = constants(image, name, severity)
    # Imported here so that the names of the corruptions can be listed without OpenCV and SciPy.
    try:
        from memo_tta.data.corruptions.operations import OPERATIONS, OWN_OPERATIONS
    except ImportError as error:
        raise MissingExtra(
            f"corruptions need OpenCV and SciPy ({error}): pip install 'memo-tta[corruptions]'"
        ) from None
    return (OPERATIONS | OWN_OPERATIONS)[name](image, rng, *parameters)


def check_severity(severity: int) -> int:
    """Return the severity as an int; raise ConfigError unless it is one of 1..5."""
    if severity not in SEVERITIES:
        raise ConfigError(f"severity: expected 1..5, got {severity!r}")
    return int(severity)


def _check_image(image: np.ndarray) -> None:
    if not isinstance(image, np.ndarray):
        raise InputError(f"image: expected a uint8 array (height, width, 3), got {type(image).__name__}")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InputError(f"image: expected a uint8 array (height, width, 3), got {image.dtype} {image.shape}")
    if min(image.shape[:2]) < MIN_SIDE:
        raise InputError(
            f"image: expected at least {MIN_SIDE} pixels a side, got {image.shape[1]} x {image.shape[0]}"
        )


corrupt = apply_corruption
