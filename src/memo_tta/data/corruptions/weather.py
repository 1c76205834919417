"""Weather: snow, frost, fog, and spatter on the lens."""

import cv2
import numpy as np

from memo_tta.data.corruptions.blur import centre_zoom, move, smooth
from memo_tta.data.corruptions.frost import frost_pictures
from memo_tta.data.corruptions.pixels import eight_bit, unit
from memo_tta.data.corruptions.severity import is_small

LUMA = np.array([0.299, 0.587, 0.114])
WATER = np.array([175, 238, 238]) / 255
MUD = np.array([63, 42, 20]) / 255
RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)


def snow(
    image: np.ndarray,
    rng: np.random.Generator,
    loc: float,
    scale: float,
    zoom: float,
    threshold: float,
    motion_radius: float,
    motion_sigma: float,
    image_weight: float,
) -> np.ndarray:
    """Falling flakes before a whitened scene."""
    flakes = centre_zoom(rng.normal(loc, scale, image.shape[:2]), zoom)
    flakes[flakes < threshold] = 0
    flakes = unit(move(eight_bit(flakes), motion_radius, motion_sigma, rng.uniform(-135, -45)))
    x = unit(image)
    white = np.maximum(x, 1.5 * (x @ LUMA)[..., None] + 0.5)
    scene = image_weight * x + (1 - image_weight) * white
    return eight_bit(scene + (flakes + flakes[::-1, ::-1])[..., None])


def frost(
    image: np.ndarray, rng: np.random.Generator, image_weight: float, frost_weight: float
) -> np.ndarray:
    """A random window of a random picture of ice, laid over the image."""
    pictures = frost_pictures(small=is_small(image))
    height, width = image.shape[:2]
    picture = _at_least(pictures[rng.integers(len(pictures))], height, width)
    top = rng.integers(max(1, picture.shape[0] - height))
    left = rng.integers(max(1, picture.shape[1] - width))
    window = picture[top : top + height, left : left + width]
    return (image_weight * image + frost_weight * window).clip(0, 255).astype(np.uint8)


def _at_least(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """The picture, enlarged if it does not cover height x width."""
    factor = max(height / picture.shape[0], width / picture.shape[1])
    if factor <= 1:
        return picture
    size = (int(np.ceil(picture.shape[1] * factor)), int(np.ceil(picture.shape[0] * factor)))
    return cv2.resize(picture, size)


def fog(image: np.ndarray, rng: np.random.Generator, strength: float, wibble_decay: float) -> np.ndarray:
    x = unit(image)
    height, width = image.shape[:2]
    size = 1 << (max(height, width) - 1).bit_length()
    haze = strength * plasma(size, wibble_decay, rng)[:height, :width, None]
    return eight_bit((x + haze) * x.max() / (x.max() + strength))


def plasma(size: int, wibble_decay: float, rng: np.random.Generator) -> np.ndarray:
    """Clouds in 0..1 on a torus of size x size, a power of two, by the diamond-square algorithm."""
    clouds = np.zeros((size, size))
    wibble = 100.0

    def near_mean(total: np.ndarray) -> np.ndarray:
        # The published code multiplies by wibble what it draws within +-wibble already.
        return total / 4 + wibble * rng.uniform(-wibble, wibble, total.shape)

    step = size
    while step > 1:
        half = step // 2
        corners = clouds[::step, ::step]
        across = corners + np.roll(corners, -1, axis=1)
        down = corners + np.roll(corners, -1, axis=0)
        centres = near_mean(across + np.roll(across, -1, axis=0))
        clouds[half::step, half::step] = centres
        clouds[::step, half::step] = near_mean(across + centres + np.roll(centres, 1, axis=0))
        clouds[half::step, ::step] = near_mean(down + centres + np.roll(centres, 1, axis=1))
        step = half
        wibble /= wibble_decay
    clouds -= clouds.min()
    return clouds / clouds.max()


def spatter(
    image: np.ndarray,
    rng: np.random.Generator,
    loc: float,
    scale: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: bool,
) -> np.ndarray:
    """Drops of water, or splashes of mud, for which `strength` is the blur of their rim."""
    liquid = smooth(rng.normal(loc, scale, image.shape[:2]), sigma)
    liquid[liquid < threshold] = 0
    x = unit(image)
    if mud:
        cover = smooth((liquid > threshold).astype(np.float64), strength)[..., None]
        cover[cover < 0.8] = 0
        return eight_bit(x * (1 - cover) + cover * MUD)
    return eight_bit(x + strength * _glint(eight_bit(liquid))[..., None] * WATER)


def _glint(liquid: np.ndarray) -> np.ndarray:
    """How much light, 0..1, drops of this thickness, 8-bit, throw: as if lit from one side."""
    inward = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    height = cv2.equalizeHist(cv2.blur(np.minimum(inward, 20), (3, 3)).astype(np.uint8))
    light = cv2.blur(cv2.filter2D(height, cv2.CV_8U, RELIEF), (3, 3))
    glint = liquid * light.astype(np.float64)
    return glint / max(glint.max(), 1)
