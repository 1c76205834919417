"""Crops by numpy and Pillow, and AugMix views by torch: the pixels of the compiled code, without numba."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image
from torch import Tensor

from memo_tta.views import augmix_torch
from memo_tta.views.augmix_plan import NO_NORMALISATION, AugMixPlan, CropPlan
from memo_tta.views.threads import parallel_for

NAME: str = "without numba"
BILINEAR = Image.Resampling.BILINEAR


def padded_crops(image: np.ndarray, plan: CropPlan, size: int, padding: int) -> np.ndarray:
    """Return crops, uint8 (n, 3, size, size), of a zero-padded uint8 (height, width, 3) image."""
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    windows = sliding_window_view(padded, (size, size), axis=(0, 1))
    crops = np.ascontiguousarray(windows[plan.box[:, 0], plan.box[:, 1]])
    crops[plan.flip] = crops[plan.flip, ..., ::-1]
    return crops


def resized_crops(image: np.ndarray, plan: CropPlan, size: int) -> np.ndarray:
    """Return crops, uint8 (n, 3, size, size), of a uint8 (height, width, 3) image."""
    picture = Image.fromarray(image)
    crops = np.empty((len(plan), 3, size, size), np.uint8)

    def resize(part: slice) -> None:
        for crop, box, flip in zip(crops[part], plan.box[part].tolist(), plan.flip[part], strict=True):
            pixels = np.asarray(_resized_crop(picture, box, size)).transpose(2, 0, 1)
            crop[:] = pixels[..., ::-1] if flip else pixels

    parallel_for(resize, len(plan))
    return crops


def _resized_crop(picture: Image.Image, box: Sequence[int], size: int) -> Image.Image:
    top, left, height, width = box
    # One axis at a time: which one comes first changes the rounding, and it depends on Pillow's version.
    height_first = height > size and height - size > 2 * (width - size)
    between = (width, size) if height_first else (size, height)
    crop = picture.crop((left, top, left + width, top + height))
    return crop.resize(between, BILINEAR).resize((size, size), BILINEAR)


def mix(
    plan: AugMixPlan,
    crops: np.ndarray,
    mean: Sequence[float] = NO_NORMALISATION[0],
    std: Sequence[float] = NO_NORMALISATION[1],
) -> Tensor:
    """Return normalised views, float32, of crops, uint8 (n, 3, height, width)."""
    return augmix_torch.mix(plan, crops, "cpu", mean, std)
