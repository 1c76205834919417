"""Blurs: out of focus, through glass, by motion, by zoom."""

from functools import lru_cache

import cv2
import numpy as np
from scipy import ndimage, sparse

from memo_tta.data.corruptions.pixels import eight_bit, unit


def smooth(x: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian over the two spatial axes, edge pixels repeated outwards."""
    return ndimage.gaussian_filter(x, sigma, mode="nearest", truncate=4, axes=(0, 1))


def gaussian_blur(image: np.ndarray, _rng: np.random.Generator, sigma: float) -> np.ndarray:
    return eight_bit(smooth(unit(image), sigma))


def defocus_blur(
    image: np.ndarray, _rng: np.random.Generator, radius: float, alias_sigma: float
) -> np.ndarray:
    kernel = disk(radius, alias_sigma)
    return eight_bit(cv2.filter2D(unit(image), -1, kernel, borderType=cv2.BORDER_REFLECT_101))


@lru_cache
def disk(radius: float, alias_sigma: float) -> np.ndarray:
    """A disk of sum 1 whose rim is softened by a small Gaussian."""
    reach, window = (8, 3) if radius <= 8 else (int(radius), 5)
    y, x = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    inside = (x**2 + y**2 <= radius**2).astype(np.float32)
    return cv2.GaussianBlur(inside / inside.sum(), (window, window), alias_sigma)


def glass_blur(
    image: np.ndarray, rng: np.random.Generator, sigma: float, max_delta: int, iterations: int
) -> np.ndarray:
    """Pixels take the colour of near ones, between two Gaussian blurs."""
    height, width = image.shape[:2]
    visited = (max(0, height - 2 * max_delta), max(0, width - 2 * max_delta))
    image = eight_bit(smooth(unit(image), sigma))
    for _ in range(iterations):
        dy, dx = rng.integers(-max_delta, max_delta, (2, *visited))
        image = copy_near_pixels(image, dy, dx)
    return eight_bit(smooth(unit(image), sigma))


def copy_near_pixels(image: np.ndarray, dy: np.ndarray, dx: np.ndarray) -> np.ndarray:
    """From the last visited pixel to the first, each takes the value that (y + dy, x + dx) has then.

    dy and dx are of the visited region, which lies one pixel nearer to the lower right than centred.
    The published code means to swap the two pixels, but assigns views, so that only one changes.
    """
    height, width = image.shape[:2]
    source = np.arange(height * width).reshape(height, width)
    top, left = (height - dy.shape[0]) // 2 + 1, (width - dy.shape[1]) // 2 + 1
    region = np.s_[top : top + dy.shape[0], left : left + dy.shape[1]]
    source[region] += dy * width + dx
    source = source.ravel()
    # A source further on has been visited before, so its value is that of its own source, and so on.
    origin = np.maximum(source, np.arange(source.size))
    while not np.array_equal(following := origin[origin], origin):
        origin = following
    return image.reshape(-1, image.shape[2])[source[origin]].reshape(image.shape)


def motion_blur(image: np.ndarray, rng: np.random.Generator, radius: float, sigma: float) -> np.ndarray:
    return move(image, radius, sigma, rng.uniform(-45, 45))


def move(image: np.ndarray, radius: float, sigma: float, degrees: float) -> np.ndarray:
    """ImageMagick's motion blur of 8-bit values, (height, width) or (height, width, channels)."""
    tap = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-(tap**2) / (2 * sigma**2))
    weights /= weights.sum()
    angle = np.deg2rad(degrees)
    right = np.ceil(tap * np.cos(angle) - 0.5).astype(int)
    down = np.ceil(tap * np.sin(angle) - 0.5).astype(int)
    rim = tap.size
    padded = np.pad(image, ((rim, rim), (rim, rim)) + ((0, 0),) * (image.ndim - 2), "edge")
    height, width = image.shape[:2]
    total = np.zeros(image.shape)
    for weight, y, x in zip(weights, rim + down, rim + right, strict=True):
        total += weight * padded[y : y + height, x : x + width]
    # ImageMagick rounds to its 16 bits; on the way to 8 the rest is cut off.
    return (np.rint(total * 257) // 257).astype(np.uint8)


def zoom_blur(image: np.ndarray, _rng: np.random.Generator, factors: tuple[float, ...]) -> np.ndarray:
    """The mean of the image and of its enlargements."""
    height, width = image.shape[:2]
    rows, columns = _zooms(height, width, factors)
    x = unit(image, np.float32)
    tall = (rows @ x.reshape(height, -1)).reshape(len(factors), height, width, 3)
    total = columns @ tall.transpose(0, 2, 1, 3).reshape(len(factors) * width, -1)
    return eight_bit((x + total.reshape(width, height, 3).transpose(1, 0, 2)) / (len(factors) + 1))


@lru_cache
def _zooms(height: int, width: int, factors: tuple[float, ...]) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Enlarge columns of `height` samples by each factor; enlarge rows of `width` by each, and add up."""
    tall = sparse.vstack([zoom_matrix(height, factor) for factor in factors])
    wide = sparse.hstack([zoom_matrix(width, factor) for factor in factors])
    return sparse.csr_array(tall, dtype=np.float32), sparse.csr_array(wide, dtype=np.float32)


def centre_zoom(x: np.ndarray, factor: float) -> np.ndarray:
    """A (height, width) array enlarged about its centre, of the same size."""
    height, width = x.shape
    return (zoom_matrix(width, factor) @ (zoom_matrix(height, factor) @ x).T).T


@lru_cache
def zoom_matrix(size: int, factor: float) -> sparse.csr_array:
    """Take the centre of a line of samples, enlarge it linearly with ends aligned, trim it to `size`."""
    kept = int(np.ceil(size / factor))
    length = round(kept * factor)
    row = np.arange(size)
    place = (size - kept) // 2 + (row + (length - size) // 2) * (kept - 1) / (length - 1)
    below = np.minimum(place.astype(int), size - 2)
    share = place - below
    index = (np.r_[row, row], np.r_[below, below + 1])
    return sparse.csr_array((np.r_[1 - share, share], index), (size, size))
