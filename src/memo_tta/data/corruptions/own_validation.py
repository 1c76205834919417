"""Validation shifts of our own: haze, casts, low light, line blur, mosaics, blocks and jitter.

Restorations are chosen on them, so that the published test corruptions stay unseen. They are of the same
kinds as some of those (docs/corruptions.md lists which), but made in other ways and with other constants.
"""

from functools import lru_cache

import numpy as np
from scipy import fft, ndimage

from memo_tta.data.corruptions.pixels import to_float, to_uint8

BLOCK = 8  # pixels per side of the blocks of `dct_blocks`
# Luminance and two colour differences, as orthonormal rows.
COLOUR_ROWS = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


def haze(image: np.ndarray, rng: np.random.Generator, thickness: float) -> np.ndarray:
    """Mix the image with tinted airlight, more where a smooth random layer is thicker."""
    airlight = rng.uniform(0.5, 1) + rng.uniform(-0.06, 0.06, 3)
    layer = smooth_layer(image.shape[:2], rng)
    transmission = np.exp(-thickness * (0.6 + 0.8 * layer))[..., None]
    return to_uint8(to_float(image) * transmission + airlight * (1 - transmission))


def smooth_layer(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return a random layer (height, width) in 0..1: 4 x 4 values, enlarged linearly."""
    axes = [np.linspace(0, 3, side) for side in shape]
    return ndimage.map_coordinates(rng.random((4, 4)), np.meshgrid(*axes, indexing="ij"), order=1)


def colour_cast(image: np.ndarray, rng: np.random.Generator, strength: float) -> np.ndarray:
    """Squeeze each channel by a factor of its own, and lift what is left by a random part of the room."""
    factor = 1 - strength * rng.permutation([0.4, 0.7, 1])
    return to_uint8(to_float(image) * factor + (1 - factor) * rng.random(3))


def low_light(
    image: np.ndarray, rng: np.random.Generator, gain: float, gamma: float, noise: float
) -> np.ndarray:
    """Darken by a power and a factor, and add faint noise of the sensor."""
    dark = gain * to_float(image) ** gamma
    return to_uint8(dark + noise * rng.standard_normal(image.shape))


def line_blur(image: np.ndarray, rng: np.random.Generator, length: float) -> np.ndarray:
    """Blur along a straight line of this length in pixels, at any angle."""
    kernel = line_kernel(length, rng.uniform(0, np.pi))[..., None]
    return to_uint8(ndimage.convolve(to_float(image), kernel, mode="reflect"))


def line_kernel(length: float, angle: float) -> np.ndarray:
    """Return a line through the centre of a square kernel of sum 1, shared out among the nearest pixels."""
    half = int(np.ceil(length / 2))
    kernel = np.zeros((2 * half + 1,) * 2)
    steps = (np.arange(64) + 0.5) / 64 - 0.5
    row, column = half - length * steps * np.sin(angle), half + length * steps * np.cos(angle)
    top, left = np.floor(row).astype(int), np.floor(column).astype(int)
    down, right = row - top, column - left
    for at, weight in (
        ((top, left), (1 - down) * (1 - right)),
        ((top, left + 1), (1 - down) * right),
        ((top + 1, left), down * (1 - right)),
        ((top + 1, left + 1), down * right),
    ):
        np.add.at(kernel, tuple(np.minimum(index, 2 * half) for index in at), weight / len(steps))
    return kernel


def mosaic(image: np.ndarray, rng: np.random.Generator, side: float) -> np.ndarray:
    """Replace the pixels of each cell by their mean; cells are `side` pixels wide, from a random start."""
    rows, columns = (
        cells(length, side * rng.uniform(0.94, 1.06), rng.random()) for length in image.shape[:2]
    )
    return to_uint8(np.tensordot(rows, columns @ to_float(image), axes=(1, 0)) + 1e-9)


def cells(length: int, side: float, start: float) -> np.ndarray:
    """Return the matrix that averages a line of pixels over cells of this mean width."""
    cell = np.floor(np.arange(length) / side + start).astype(int)
    same = (cell[:, None] == cell).astype(float)
    return same / same.sum(axis=1, keepdims=True)


def dct_blocks(image: np.ndarray, _rng: np.random.Generator, step: float) -> np.ndarray:
    """Round the cosine coefficients of 8 x 8 blocks of luminance and colour differences.

    The steps, in 255ths, grow linearly with the frequency, and are twice as wide for colour differences.
    """
    height, width = image.shape[:2]
    padding = [(0, -side % BLOCK) for side in (height, width)]
    planes = np.pad(to_float(image) @ COLOUR_ROWS.T, (*padding, (0, 0)), "edge")
    shape = (planes.shape[0] // BLOCK, BLOCK, planes.shape[1] // BLOCK, BLOCK, 3)
    steps = quantisation_steps(step)[:, None]  # (8, 1, 8, 3)
    coefficients = np.asarray(fft.dctn(planes.reshape(shape), axes=(1, 3), norm="ortho"))
    rounded = np.rint(coefficients / steps) * steps
    planes = np.asarray(fft.idctn(rounded, axes=(1, 3), norm="ortho")).reshape(planes.shape)
    return to_uint8(planes[:height, :width] @ COLOUR_ROWS + 0.5 / 255)


@lru_cache
def quantisation_steps(step: float) -> np.ndarray:
    """Return the steps of each frequency and colour, (8, 8, 3), on the scale 0..1."""
    frequency = np.add.outer(np.arange(BLOCK), np.arange(BLOCK))
    return step / 255 * (1 + 0.5 * frequency)[..., None] * np.array([1, 2, 2])


def jitter(image: np.ndarray, rng: np.random.Generator, distance: float, softness: float) -> np.ndarray:
    """Show at each pixel what is a random distance away, between whole pixels, then blur: rippled glass."""
    shift = rng.normal(0, distance, (2, *image.shape[:2]))
    at = np.indices(image.shape[:2]) + shift
    channels = [
        ndimage.map_coordinates(channel, at, order=1, mode="reflect")
        for channel in np.moveaxis(to_float(image), 2, 0)
    ]
    return to_uint8(ndimage.gaussian_filter(np.stack(channels, axis=2), softness, axes=(0, 1)))
