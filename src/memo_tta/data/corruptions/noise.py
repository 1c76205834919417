"""Noise, drawn for each pixel and each channel by itself."""

import numpy as np

from memo_tta.data.corruptions.pixels import eight_bit, unit


def gaussian_noise(image: np.ndarray, rng: np.random.Generator, std: float) -> np.ndarray:
    return eight_bit(unit(image) + rng.normal(0, std, image.shape))


def shot_noise(image: np.ndarray, rng: np.random.Generator, rate: float) -> np.ndarray:
    """`rate` photons stand for full brightness."""
    return eight_bit(rng.poisson(unit(image) * rate) / rate)


def impulse_noise(image: np.ndarray, rng: np.random.Generator, amount: float) -> np.ndarray:
    """A share `amount` of the values becomes 0 or 255, with equal odds."""
    draw = rng.random(image.shape)
    return np.where(draw < amount, np.where(draw < amount / 2, 0, 255), image).astype(np.uint8)


def speckle_noise(image: np.ndarray, rng: np.random.Generator, std: float) -> np.ndarray:
    x = unit(image)
    return eight_bit(x + x * rng.normal(0, std, image.shape))
