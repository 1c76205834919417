"""Conversion between uint8 pixels and the 0..1 scale on which most corruptions are defined."""

import numpy as np


def to_float(image: np.ndarray, dtype: type[np.floating] = np.float64) -> np.ndarray:
    """Scale uint8 pixels to floats in 0..1."""
    return image.astype(dtype) / 255


def to_uint8(x: np.ndarray) -> np.ndarray:
    """Clip to 0..1 and scale to uint8; truncates instead of rounding, as the published code does."""
    return (x.clip(0, 1) * 255).astype(np.uint8)
