"""Noise corruptions: independent for every pixel and channel."""

import numpy as np

from memo_tta.data.corruptions.pixels import to_float, to_uint8


def gaussian_noise(image: np.ndarray, rng: np.random.Generator, std: float) -> np.ndarray:
    return to_uint8(to_float(image) + rng.normal(0, std, image.shape))


def shot_noise(image: np.ndarray, rng: np.random.Generator, rate: float) -> np.ndarray:
    """Add Poisson noise, where `rate` photons are full brightness."""
    return to_uint8(rng.poisson(to_float(image) * rate) / rate)


def impulse_noise(image: np.ndarray, rng: np.random.Generator, amount: float) -> np.ndarray:
    """Replace a fraction `amount` of the values by 0 or 255, equally often."""
    draw = rng.random(image.shape)
    return np.where(draw < amount, np.where(draw < amount / 2, 0, 255), image).astype(np.uint8)


def speckle_noise(image: np.ndarray, rng: np.random.Generator, std: float) -> np.ndarray:
    """Add Gaussian noise in proportion to the brightness."""
    x = to_float(image)
    return to_uint8(x + x * rng.normal(0, std, image.shape))
