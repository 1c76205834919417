"""Crops and AugMix views by compiled code (the extra `fast`), in as many threads as torch uses."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from memo_tta.image import Size, height_and_width
from memo_tta.views import augmix_kernels, crop_kernels
from memo_tta.views.augmix_plan import FILL, NO_NORMALISATION, AugMixPlan, CropPlan
from memo_tta.views.threads import parallel_for

NAME: str = "compiled"


def padded_crops(image: np.ndarray, plan: CropPlan, size: Size, padding: Size) -> np.ndarray:
    """Return crops, uint8 (n, channels, height, width), of a zero-padded image, channels last."""
    down, right = height_and_width(padding)
    planes = np.ascontiguousarray(image.transpose(2, 0, 1))
    padded = np.pad(planes, ((0, 0), (down, down), (right, right)))
    crops = _empty(plan, image, size)
    crop_kernels.cut(padded, plan.box, plan.flip, crops)
    return crops


def resized_crops(image: np.ndarray, plan: CropPlan, size: Size) -> np.ndarray:
    """Return crops, uint8 (n, channels, height, width), of a uint8 image, channels last."""
    rows, columns = image.transpose(2, 0, 1).copy(), image.transpose(2, 1, 0).copy()
    crops = _empty(plan, image, size)

    def resize(part: slice) -> None:
        crop_kernels.resize(rows, columns, plan.box[part], plan.flip[part], crops[part])

    parallel_for(resize, len(plan))
    return crops


def _empty(plan: CropPlan, image: np.ndarray, size: Size) -> np.ndarray:
    return np.empty((len(plan), image.shape[2], *height_and_width(size)), np.uint8)


def mix(
    plan: AugMixPlan,
    crops: np.ndarray,
    mean: Sequence[float] = NO_NORMALISATION[0],
    std: Sequence[float] = NO_NORMALISATION[1],
) -> Tensor:
    """Return normalised views, float32, of crops, uint8 (n, channels, height, width)."""
    n, channels, height, width = crops.shape
    flat = crops.reshape(n, channels, height * width)
    views = np.empty(flat.shape, np.float32)
    centre, spread = (np.array(np.broadcast_to(values, channels)) for values in (mean, std))
    scale = (1 / (255 * spread)).astype(np.float32)
    offset = (-centre / spread).astype(np.float32)
    fill = np.array(FILL[:channels], np.uint8)

    def mix_part(part: slice) -> None:
        chains = plan.operations[part], plan.parameters[part], plan.weights[part], plan.keep[part]
        augmix_kernels.mix(flat[part], width, *chains, scale, offset, fill, views[part])

    parallel_for(mix_part, n)
    return torch.from_numpy(views.reshape(crops.shape))
