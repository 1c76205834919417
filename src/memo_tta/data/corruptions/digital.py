"""What cameras, files and screens do: brightness, colour, contrast, elastic warps, pixels, JPEG."""

import io

import cv2
import numpy as np
from PIL import Image
from scipy import ndimage

from memo_tta.data.corruptions.pixels import eight_bit, unit

RED = np.array([0.0, 1.0, 1.0])  # the hue that grey counts as


def brightness(image: np.ndarray, _rng: np.random.Generator, delta: float) -> np.ndarray:
    value, saturation, hue = _hsv(unit(image))
    return eight_bit(_rgb((value + delta).clip(0, 1), saturation, hue))


def saturate(image: np.ndarray, _rng: np.random.Generator, factor: float, shift: float) -> np.ndarray:
    value, saturation, hue = _hsv(unit(image))
    return eight_bit(_rgb(value, (saturation * factor + shift).clip(0, 1), hue))


def _hsv(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value and saturation, (height, width, 1), and hue, (height, width, 3).

    A hue is how far each channel lies below the largest: from 0, the largest, to 1, the smallest.
    """
    value = x.max(axis=2, keepdims=True)
    spread = value - x.min(axis=2, keepdims=True)
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    hue = np.divide(value - x, spread, out=np.broadcast_to(RED, x.shape).copy(), where=spread > 0)
    return value, saturation, hue


def _rgb(value: np.ndarray, saturation: np.ndarray, hue: np.ndarray) -> np.ndarray:
    return value * (1 - saturation * hue)


def contrast(image: np.ndarray, _rng: np.random.Generator, factor: float) -> np.ndarray:
    x = unit(image)
    mean = x.mean(axis=(0, 1))
    return eight_bit((x - mean) * factor + mean)


def elastic_transform(
    image: np.ndarray, rng: np.random.Generator, alpha: float, sigma: float, affine_jitter: float
) -> np.ndarray:
    """A random affine map, then a smooth random displacement of every pixel."""
    x = _shaken(unit(image, np.float32), rng, affine_jitter)
    dx, dy = (alpha * _smooth_field(image.shape[:2], rng, sigma) for _ in range(2))
    rows, columns = np.indices(image.shape[:2])
    place = (rows + dy, columns + dx)
    planes = [
        ndimage.map_coordinates(plane, place, order=1, mode="reflect") for plane in np.moveaxis(x, 2, 0)
    ]
    return eight_bit(np.stack(planes, axis=2))


def _shaken(x: np.ndarray, rng: np.random.Generator, jitter: float) -> np.ndarray:
    """The affine map that moves three points about the centre by up to `jitter` pixels each way."""
    height, width = x.shape[:2]
    arm = min(height, width) // 3
    # As published, the centre is (row, column) where OpenCV reads (x, y).
    centre = np.array([height // 2, width // 2])
    points = (centre + arm * np.array([(1, 1), (1, -1), (-1, -1)])).astype(np.float32)
    moved = points + rng.uniform(-jitter, jitter, points.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(points, moved)
    return cv2.warpAffine(x, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)


def _smooth_field(shape: tuple[int, ...], rng: np.random.Generator, sigma: float) -> np.ndarray:
    return ndimage.gaussian_filter(rng.uniform(-1, 1, shape), sigma, mode="reflect", truncate=3)


def pixelate(image: np.ndarray, _rng: np.random.Generator, scale: float) -> np.ndarray:
    height, width = image.shape[:2]
    coarse = Image.fromarray(image).resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
    return np.array(coarse.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: np.ndarray, _rng: np.random.Generator, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.array(Image.open(file))
