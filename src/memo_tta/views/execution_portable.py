"""Crops by numpy and Pillow, and AugMix views by torch: the pixels of the compiled code, without numba."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image
from torch import Tensor

from memo_tta.image import Size, height_and_width
from memo_tta.views import augmix_torch
from memo_tta.views.augmix_plan import NO_NORMALISATION, AugMixPlan, CropPlan
from memo_tta.views.threads import parallel_for

NAME: str = "without numba"
BILINEAR = Image.Resampling.BILINEAR


def padded_crops(image: np.ndarray, plan: CropPlan, size: Size, padding: Size) -> np.ndarray:
    """Return crops, uint8 (n, channels, height, width), of a zero-padded image, channels last."""
    down, right = height_and_width(padding)
    padded = np.pad(image, ((down, down), (right, right), (0, 0)))
    windows = sliding_window_view(padded, height_and_width(size), axis=(0, 1))
    crops = np.ascontiguousarray(windows[plan.box[:, 0], plan.box[:, 1]])
    crops[plan.flip] = crops[plan.flip, ..., ::-1]
    return crops


def resized_crops(image: np.ndarray, plan: CropPlan, size: Size) -> np.ndarray:
    """Return crops, uint8 (n, channels, height, width), of a uint8 image, channels last."""
    # Pillow would take 2 or 4 channels for colours with transparency.
    planes = np.moveaxis(image, 2, 0)
    pictures = [Image.fromarray(part) for part in ([image] if len(planes) == 3 else planes)]
    target = height_and_width(size)
    crops = np.empty((len(plan), len(planes), *target), np.uint8)

    def resize(part: slice) -> None:
        for crop, box, flip in zip(crops[part], plan.box[part].tolist(), plan.flip[part], strict=True):
            parts = [np.atleast_3d(_resized_crop(picture, box, target)) for picture in pictures]
            pixels = np.concatenate(parts, axis=2).transpose(2, 0, 1)
            crop[:] = pixels[..., ::-1] if flip else pixels

    parallel_for(resize, len(plan))
    return crops


def _resized_crop(picture: Image.Image, box: Sequence[int], size: tuple[int, int]) -> np.ndarray:
    top, left, height, width = box
    to_height, to_width = size
    # One axis at a time: which one comes first changes the rounding, and it depends on Pillow's version.
    height_first = height > to_height and height - to_height > 2 * (width - to_width)
    between = (width, to_height) if height_first else (to_width, height)
    crop = picture.crop((left, top, left + width, top + height))
    return np.asarray(crop.resize(between, BILINEAR).resize((to_width, to_height), BILINEAR))


def mix(
    plan: AugMixPlan,
    crops: np.ndarray,
    mean: Sequence[float] = NO_NORMALISATION[0],
    std: Sequence[float] = NO_NORMALISATION[1],
) -> Tensor:
    """Return normalised views, float32, of crops, uint8 (n, channels, height, width)."""
    return augmix_torch.mix(plan, crops, "cpu", mean, std)
