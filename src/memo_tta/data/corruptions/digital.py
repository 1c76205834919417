"""Digital corruptions: brightness, saturation, contrast, elastic transform, pixelation, JPEG."""

import io

import cv2
import numpy as np
from PIL import Image
from scipy import ndimage

from memo_tta.data.corruptions.pixels import to_float, to_uint8

RED = np.array([0.0, 1.0, 1.0])  # the hue assigned to grey pixels


def brightness(image: np.ndarray, _rng: np.random.Generator, delta: float) -> np.ndarray:
    value, saturation, hue = _hsv(to_float(image))
    return to_uint8(_rgb((value + delta).clip(0, 1), saturation, hue))


def saturate(image: np.ndarray, _rng: np.random.Generator, factor: float, shift: float) -> np.ndarray:
    value, saturation, hue = _hsv(to_float(image))
    return to_uint8(_rgb(value, (saturation * factor + shift).clip(0, 1), hue))


def _hsv(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return value and saturation, (height, width, 1), and hue, (height, width, 3).

    The hue is each channel's distance from the largest channel: 0 for the largest, 1 for the smallest.
    """
    value = x.max(axis=2, keepdims=True)
    spread = value - x.min(axis=2, keepdims=True)
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    hue = np.divide(value - x, spread, out=np.broadcast_to(RED, x.shape).copy(), where=spread > 0)
    return value, saturation, hue


def _rgb(value: np.ndarray, saturation: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """Invert `_hsv`."""
    return value * (1 - saturation * hue)


def contrast(image: np.ndarray, _rng: np.random.Generator, factor: float) -> np.ndarray:
    x = to_float(image)
    mean = x.mean(axis=(0, 1))
    return to_uint8((x - mean) * factor + mean)


def elastic_transform(
    image: np.ndarray, rng: np.random.Generator, alpha: float, sigma: float, affine_jitter: float
) -> np.ndarray:
    """Apply a random affine map, then a smooth random displacement of every pixel."""
    x = _random_affine(to_float(image, np.float32), rng, affine_jitter)
    dx, dy = (alpha * _smooth_field(image.shape[:2], rng, sigma) for _ in range(2))
    rows, columns = np.indices(image.shape[:2])
    coordinates = (rows + dy, columns + dx)
    channels = [
        ndimage.map_coordinates(channel, coordinates, order=1, mode="reflect")
        for channel in np.moveaxis(x, 2, 0)
    ]
    return to_uint8(np.stack(channels, axis=2))


def _random_affine(x: np.ndarray, rng: np.random.Generator, jitter: float) -> np.ndarray:
    """Apply the affine map that moves three corners by up to `jitter` pixels in x and y."""
    height, width = x.shape[:2]
    offset = min(height, width) // 3
    # As published: (row, column), although OpenCV expects (x, y).
    centre = np.array([height // 2, width // 2])
    corners = (centre + offset * np.array([(1, 1), (1, -1), (-1, -1)])).astype(np.float32)
    moved = corners + rng.uniform(-jitter, jitter, corners.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(corners, moved)
    return cv2.warpAffine(x, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)


def _smooth_field(shape: tuple[int, ...], rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Return uniform noise in -1..1, smoothed by a Gaussian."""
    return ndimage.gaussian_filter(rng.uniform(-1, 1, shape), sigma, mode="reflect", truncate=3)


def pixelate(image: np.ndarray, _rng: np.random.Generator, scale: float) -> np.ndarray:
    height, width = image.shape[:2]
    coarse = Image.fromarray(image).resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
    return np.array(coarse.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: np.ndarray, _rng: np.random.Generator, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.array(Image.open(file))
