"""The pictures of ice that the frost corruption adds to an image."""

import warnings
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from memo_tta.errors import DataError, MemoWarning
from memo_tta.files import data_folder

# The published list names a sixth picture, which its code never uses.
PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
MIN_SIDE, MAX_PIXELS = 16, 1 << 24  # of a picture; the published ones have about a million pixels
SMALL_SCALE = 0.2  # of the pictures, for small images

# Procedural pictures: RGB colours of background and crystals, size, and directions of the needles.
BACKGROUND = np.array([64, 98, 118])
CRYSTAL = np.array([232, 240, 246])
PROCEDURAL_SHAPE = (360, 540)
DIRECTIONS = 6

Pictures = tuple[np.ndarray, ...]  # uint8 (height, width, 3)


def frost_source() -> Literal["photographs", "procedural"]:
    """Return whether the published photographs are used, or procedural pictures in their place."""
    return "photographs" if _folder().is_dir() else "procedural"


def frost_pictures(small: bool = False) -> Pictures:
    """Return the five pictures, at a fifth of their size for small images."""
    if frost_source() == "photographs":
        return _photographs(_folder(), small)
    _warn_procedural()
    return _procedural_pictures(small)


def _folder() -> Path:
    return data_folder() / "frost"


@cache
def _photographs(folder: Path, small: bool) -> Pictures:
    return _scaled([_photograph(folder / name) for name in PHOTOGRAPHS], small)


def _photograph(path: Path) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of many pixels, which are checked here
            picture = Image.open(path, formats=["PNG", "JPEG"])
        with picture:
            if min(picture.size) < MIN_SIDE or picture.width * picture.height > MAX_PIXELS:
                raise ValueError(f"{picture.width} x {picture.height} pixels")
            return np.asarray(picture.convert("RGB"))
    except MemoryError:
        raise
    except Exception as error:  # Pillow does not say which exceptions damaged bytes can raise
        raise DataError(
            f"{path}: the picture is missing or damaged ({error}): "
            f"delete {path.parent} and run `memo data get frost`"
        ) from None


@cache
def _procedural_pictures(small: bool) -> Pictures:
    return _scaled([_draw_ice(number) for number in range(len(PHOTOGRAPHS))], small)


def _scaled(pictures: list[np.ndarray], small: bool) -> Pictures:
    if not small:
        return tuple(pictures)
    import cv2  # imported here so that frost_source works without OpenCV

    return tuple(cv2.resize(picture, None, fx=SMALL_SCALE, fy=SMALL_SCALE) for picture in pictures)


@cache
def _warn_procedural() -> None:
    warnings.warn(
        "frost: the published photographs are not installed; procedural pictures replace them, so errors are "
        "not comparable with published ones: run `memo data get frost`",
        MemoWarning,
        stacklevel=2,
    )


def _draw_ice(number: int) -> np.ndarray:
    """Draw bright needles of varying density, in a few directions, on a blue-grey background."""
    rng = np.random.default_rng([2019, number])
    needles = np.zeros(PROCEDURAL_SHAPE)
    for angle in rng.uniform(0, np.pi, DIRECTIONS):
        needles = np.maximum(needles, _streaks(rng, angle, 14, 1.2))
    density = _streaks(rng, 0, 40, 40)
    ice = (0.25 + 0.13 * needles**1.5 + 0.14 * density).clip(0, 1)[..., None]
    return (BACKGROUND + ice * (CRYSTAL - BACKGROUND)).astype(np.uint8)


def _streaks(rng: np.random.Generator, angle: float, length: float, width: float) -> np.ndarray:
    """Return white noise filtered by an elongated Gaussian at this angle, with unit standard deviation."""
    v, u = (np.fft.fftfreq(size) for size in PROCEDURAL_SHAPE)
    v = v[:, None]
    along = u * np.cos(angle) + v * np.sin(angle)
    across = v * np.cos(angle) - u * np.sin(angle)
    transfer = np.exp(-2 * np.pi**2 * ((along * length) ** 2 + (across * width) ** 2))
    field = np.fft.ifft2(np.fft.fft2(rng.normal(size=PROCEDURAL_SHAPE)) * transfer).real
    return field / field.std()
