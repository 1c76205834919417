"""Between 8-bit pixels and the 0..1 scale on which most corruptions are defined."""

import numpy as np


def unit(image: np.ndarray, dtype: type[np.floating] = np.float64) -> np.ndarray:
    """8-bit values as floats in 0..1."""
    return image.astype(dtype) / 255


def eight_bit(x: np.ndarray) -> np.ndarray:
    """Values clipped to 0..1, as uint8: truncated, not rounded, as the published images are."""
    return (x.clip(0, 1) * 255).astype(np.uint8)
