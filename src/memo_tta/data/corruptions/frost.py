"""The pictures of ice that the frost corruption lays over an image."""

import warnings
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from memo_tta.errors import DataError, MemoWarning
from memo_tta.files import data_folder

# The published list has a sixth picture, which its code never draws.
PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
SMALL_SCALE = 0.2

# Colours, uint8 RGB, of the ground and of the crystals of the stand-in: blue-grey and near white.
GROUND = np.array([64, 98, 118])
CRYSTAL = np.array([232, 240, 246])
STAND_IN_SHAPE = (360, 540)
DIRECTIONS = 6

Pictures = tuple[np.ndarray, ...]  # uint8 (height, width, 3)


def frost_source() -> Literal["photographs", "procedural"]:
    """Whether frost is made with the published photographs or with their stand-in."""
    return "photographs" if _folder().is_dir() else "procedural"


def frost_pictures(small: bool = False) -> Pictures:
    """The five pictures, shrunk to a fifth for small images."""
    if frost_source() == "photographs":
        return _photographs(_folder(), small)
    _warn_of_stand_in()
    return _stand_in(small)


def _folder() -> Path:
    return data_folder() / "frost"


@cache
def _photographs(folder: Path, small: bool) -> Pictures:
    try:
        pictures = [np.asarray(Image.open(folder / name).convert("RGB")) for name in PHOTOGRAPHS]
    except OSError as error:
        raise DataError(
            f"{folder}: a picture is missing or damaged ({error}): "
            "delete the folder and run `memo data get frost`"
        ) from None
    return _scaled(pictures, small)


@cache
def _stand_in(small: bool) -> Pictures:
    return _scaled([_ice(number) for number in range(len(PHOTOGRAPHS))], small)


def _scaled(pictures: list[np.ndarray], small: bool) -> Pictures:
    if not small:
        return tuple(pictures)
    import cv2  # only here, so that frost_source does without

    return tuple(cv2.resize(picture, None, fx=SMALL_SCALE, fy=SMALL_SCALE) for picture in pictures)


@cache
def _warn_of_stand_in() -> None:
    warnings.warn(
        "frost: a procedural texture takes the place of the published photographs, so errors "
        "cannot be compared with published ones: run `memo data get frost`",
        MemoWarning,
        stacklevel=2,
    )


def _ice(number: int) -> np.ndarray:
    """Bright needles in a few directions, denser in some places than in others, on a blue-grey ground."""
    rng = np.random.default_rng([2019, number])
    needles = np.zeros(STAND_IN_SHAPE)
    for angle in rng.uniform(0, np.pi, DIRECTIONS):
        needles = np.maximum(needles, _streaks(rng, angle, 14, 1.2))
    density = _streaks(rng, 0, 40, 40)
    ice = (0.25 + 0.13 * needles**1.5 + 0.14 * density).clip(0, 1)[..., None]
    return (GROUND + ice * (CRYSTAL - GROUND)).astype(np.uint8)


def _streaks(rng: np.random.Generator, angle: float, length: float, width: float) -> np.ndarray:
    """White noise, smoothed by a Gaussian drawn out along a direction, at unit standard deviation."""
    v, u = (np.fft.fftfreq(size) for size in STAND_IN_SHAPE)
    v = v[:, None]
    along = u * np.cos(angle) + v * np.sin(angle)
    across = v * np.cos(angle) - u * np.sin(angle)
    pass_band = np.exp(-2 * np.pi**2 * ((along * length) ** 2 + (across * width) ** 2))
    field = np.fft.ifft2(np.fft.fft2(rng.normal(size=STAND_IN_SHAPE)) * pass_band).real
    return field / field.std()
