"""Weather corruptions: snow, frost, fog, and spatter on the lens."""

import cv2
import numpy as np

from memo_tta.data.corruptions.blur import centre_zoom, imagemagick_motion_blur, smooth
from memo_tta.data.corruptions.frost import frost_pictures
from memo_tta.data.corruptions.pixels import to_float, to_uint8
from memo_tta.data.corruptions.severity import is_small

LUMA = np.array([0.299, 0.587, 0.114])
WATER = np.array([175, 238, 238]) / 255
MUD = np.array([63, 42, 20]) / 255
EMBOSS_KERNEL = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)


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
    """Whiten the scene and add motion-blurred flakes."""
    flakes = centre_zoom(rng.normal(loc, scale, image.shape[:2]), zoom)
    flakes[flakes < threshold] = 0
    degrees = rng.uniform(-135, -45)
    flakes = to_float(imagemagick_motion_blur(to_uint8(flakes), motion_radius, motion_sigma, degrees))
    x = to_float(image)
    white = np.maximum(x, 1.5 * (x @ LUMA)[..., None] + 0.5)
    scene = image_weight * x + (1 - image_weight) * white
    return to_uint8(scene + (flakes + flakes[::-1, ::-1])[..., None])


def frost(
    image: np.ndarray, rng: np.random.Generator, image_weight: float, frost_weight: float
) -> np.ndarray:
    """Add a random crop of a random picture of ice."""
    pictures = frost_pictures(small=is_small(image))
    height, width = image.shape[:2]
    picture = _enlarge_to_cover(pictures[rng.integers(len(pictures))], height, width)
    top = rng.integers(max(1, picture.shape[0] - height))
    left = rng.integers(max(1, picture.shape[1] - width))
    window = picture[top : top + height, left : left + width]
    return (image_weight * image + frost_weight * window).clip(0, 255).astype(np.uint8)


def _enlarge_to_cover(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Enlarge the picture if it is smaller than height x width."""
    factor = max(height / picture.shape[0], width / picture.shape[1])
    if factor <= 1:
        return picture
    size = (int(np.ceil(picture.shape[1] * factor)), int(np.ceil(picture.shape[0] * factor)))
    return cv2.resize(picture, size)


def fog(image: np.ndarray, rng: np.random.Generator, strength: float, wibble_decay: float) -> np.ndarray:
    """Add plasma noise as haze, and scale back to the largest value of the image."""
    x = to_float(image)
    height, width = image.shape[:2]
    size = 1 << (max(height, width) - 1).bit_length()
    haze = strength * plasma(size, wibble_decay, rng)[:height, :width, None]
    return to_uint8((x + haze) * x.max() / (x.max() + strength))


def plasma(size: int, wibble_decay: float, rng: np.random.Generator) -> np.ndarray:
    """Return periodic plasma noise in 0..1, (size, size) with size a power of two, by diamond-square."""
    clouds = np.zeros((size, size))
    wibble = 100.0

    def perturbed_mean(total: np.ndarray) -> np.ndarray:
        # As published, the noise is scaled by wibble twice.
        return total / 4 + wibble * rng.uniform(-wibble, wibble, total.shape)

    step = size
    while step > 1:
        half = step // 2
        corners = clouds[::step, ::step]
        across = corners + np.roll(corners, -1, axis=1)
        down = corners + np.roll(corners, -1, axis=0)
        centres = perturbed_mean(across + np.roll(across, -1, axis=0))
        clouds[half::step, half::step] = centres
        clouds[::step, half::step] = perturbed_mean(across + centres + np.roll(centres, 1, axis=0))
        clouds[half::step, ::step] = perturbed_mean(down + centres + np.roll(centres, 1, axis=1))
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
    """Add drops of water (`strength` is their brightness) or splashes of mud (the blur of their edges)."""
    liquid = smooth(rng.normal(loc, scale, image.shape[:2]), sigma)
    liquid[liquid < threshold] = 0
    x = to_float(image)
    if mud:
        cover = smooth((liquid > threshold).astype(np.float64), strength)[..., None]
        cover[cover < 0.8] = 0
        return to_uint8(x * (1 - cover) + cover * MUD)
    return to_uint8(x + strength * _reflections(to_uint8(liquid))[..., None] * WATER)


def _reflections(liquid: np.ndarray) -> np.ndarray:
    """Return the light, 0..1, that drops of this thickness (uint8) reflect when lit from one side."""
    edge_distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    height = cv2.equalizeHist(cv2.blur(np.minimum(edge_distance, 20), (3, 3)).astype(np.uint8))
    light = cv2.blur(cv2.filter2D(height, cv2.CV_8U, EMBOSS_KERNEL), (3, 3))
    reflected = liquid * light.astype(np.float64)
    return reflected / max(reflected.max(), 1)
