"""Blur corruptions: Gaussian, defocus, glass, motion and zoom."""

from functools import lru_cache

import cv2
import numpy as np
from scipy import ndimage, sparse

from memo_tta.data.corruptions.pixels import to_float, to_uint8


def smooth(x: np.ndarray, sigma: float) -> np.ndarray:
    """Apply a Gaussian filter over the two spatial axes, repeating edge pixels."""
    return ndimage.gaussian_filter(x, sigma, mode="nearest", truncate=4, axes=(0, 1))


def gaussian_blur(image: np.ndarray, _rng: np.random.Generator, sigma: float) -> np.ndarray:
    return to_uint8(smooth(to_float(image), sigma))


def defocus_blur(
    image: np.ndarray, _rng: np.random.Generator, radius: float, alias_sigma: float
) -> np.ndarray:
    kernel = disk(radius, alias_sigma)
    return to_uint8(cv2.filter2D(to_float(image), -1, kernel, borderType=cv2.BORDER_REFLECT_101))


@lru_cache
def disk(radius: float, alias_sigma: float) -> np.ndarray:
    """Return a disk-shaped kernel of sum 1, anti-aliased by a small Gaussian."""
    half_size, aliasing_size = (8, 3) if radius <= 8 else (int(radius), 5)
    y, x = np.ogrid[-half_size : half_size + 1, -half_size : half_size + 1]
    inside = (x**2 + y**2 <= radius**2).astype(np.float32)
    return cv2.GaussianBlur(inside / inside.sum(), (aliasing_size, aliasing_size), alias_sigma)


def glass_blur(
    image: np.ndarray, rng: np.random.Generator, sigma: float, max_delta: int, iterations: int
) -> np.ndarray:
    """Copy pixels from random neighbours, between two Gaussian blurs."""
    height, width = image.shape[:2]
    visited = (max(0, height - 2 * max_delta), max(0, width - 2 * max_delta))
    image = to_uint8(smooth(to_float(image), sigma))
    for _ in range(iterations):
        dy, dx = rng.integers(-max_delta, max_delta, (2, *visited))
        image = copy_neighbours(image, dy, dx)
    return to_uint8(smooth(to_float(image), sigma))


def copy_neighbours(image: np.ndarray, dy: np.ndarray, dx: np.ndarray) -> np.ndarray:
    """Copy the pixel at (y + dy, x + dx) to (y, x), one after the other from the last to the first.

    dy and dx cover the region that the published code visits: centred, but one pixel further to the lower
    right. That code means to swap the two pixels, but assigns views, so that only one of them changes.
    """
    height, width = image.shape[:2]
    source = np.arange(height * width).reshape(height, width)
    top, left = (height - dy.shape[0]) // 2 + 1, (width - dy.shape[1]) // 2 + 1
    region = np.s_[top : top + dy.shape[0], left : left + dy.shape[1]]
    source[region] += dy * width + dx
    source = source.ravel()
    # A source that comes later in the image was already overwritten: follow the chain of copies to its end.
    origin = np.maximum(source, np.arange(source.size))
    while not np.array_equal(next_origin := origin[origin], origin):
        origin = next_origin
    return image.reshape(-1, image.shape[2])[source[origin]].reshape(image.shape)


def motion_blur(image: np.ndarray, rng: np.random.Generator, radius: float, sigma: float) -> np.ndarray:
    return imagemagick_motion_blur(image, radius, sigma, rng.uniform(-45, 45))


def imagemagick_motion_blur(image: np.ndarray, radius: float, sigma: float, degrees: float) -> np.ndarray:
    """Blur uint8 pixels, (height, width) or (height, width, channels), along one direction."""
    tap = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-(tap**2) / (2 * sigma**2))
    weights /= weights.sum()
    angle = np.deg2rad(degrees)
    right = np.ceil(tap * np.cos(angle) - 0.5).astype(int)
    down = np.ceil(tap * np.sin(angle) - 0.5).astype(int)
    padding = tap.size
    padded = np.pad(image, ((padding, padding), (padding, padding)) + ((0, 0),) * (image.ndim - 2), "edge")
    height, width = image.shape[:2]
    total = np.zeros(image.shape)
    for weight, y, x in zip(weights, padding + down, padding + right, strict=True):
        total += weight * padded[y : y + height, x : x + width]
    # ImageMagick rounds to 16 bits, and truncates these to 8.
    return (np.rint(total * 257) // 257).astype(np.uint8)


def zoom_blur(image: np.ndarray, _rng: np.random.Generator, factors: tuple[float, ...]) -> np.ndarray:
    """Average the image and its enlargements."""
    height, width = image.shape[:2]
    rows, columns = _zoom_matrices(height, width, factors)
    x = to_float(image, np.float32)
    tall = (rows @ x.reshape(height, -1)).reshape(len(factors), height, width, 3)
    total = columns @ tall.transpose(0, 2, 1, 3).reshape(len(factors) * width, -1)
    return to_uint8((x + total.reshape(width, height, 3).transpose(1, 0, 2)) / (len(factors) + 1))


@lru_cache
def _zoom_matrices(
    height: int, width: int, factors: tuple[float, ...]
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return the matrices that enlarge columns by each factor, and rows by each factor, summed."""
    tall = sparse.vstack([zoom_matrix(height, factor) for factor in factors])
    wide = sparse.hstack([zoom_matrix(width, factor) for factor in factors])
    return sparse.csr_array(tall, dtype=np.float32), sparse.csr_array(wide, dtype=np.float32)


def centre_zoom(x: np.ndarray, factor: float) -> np.ndarray:
    """Enlarge a (height, width) array about its centre and crop it to the same size."""
    height, width = x.shape
    return (zoom_matrix(width, factor) @ (zoom_matrix(height, factor) @ x).T).T


@lru_cache
def zoom_matrix(size: int, factor: float) -> sparse.csr_array:
    """Return the matrix that zooms a line of `size` pixels about its centre, linearly with aligned ends."""
    kept = int(np.ceil(size / factor))
    length = round(kept * factor)
    row = np.arange(size)
    source = (size - kept) // 2 + (row + (length - size) // 2) * (kept - 1) / (length - 1)
    left = np.minimum(source.astype(int), size - 2)
    weight = source - left
    index = (np.r_[row, row], np.r_[left, left + 1])
    return sparse.csr_array((np.r_[1 - weight, weight], index), (size, size))
