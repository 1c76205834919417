"""Crops and AugMix views by compiled code (the extra `fast`), in as many threads as torch uses."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from memo_tta.views import augmix_kernels, crop_kernels
from memo_tta.views.augmix_plan import FILL, NO_NORMALISATION, AugMixPlan, CropPlan
from memo_tta.views.threads import parallel_for

NAME: str = "compiled"


def padded_crops(image: np.ndarray, plan: CropPlan, size: int, padding: int) -> np.ndarray:
    """Return crops, uint8 (n, 3, size, size), of a zero-padded uint8 (height, width, 3) image."""
    margin = (padding, padding)
    padded = np.pad(image.transpose(2, 0, 1), ((0, 0), margin, margin))
    crops = np.empty((len(plan), 3, size, size), np.uint8)
    crop_kernels.cut(padded, plan.box, plan.flip, crops)
    return crops


def resized_crops(image: np.ndarray, plan: CropPlan, size: int) -> np.ndarray:
    """Return crops, uint8 (n, 3, size, size), of a uint8 (height, width, 3) image."""
    rows, columns = image.transpose(2, 0, 1).copy(), image.transpose(2, 1, 0).copy()
    crops = np.empty((len(plan), 3, size, size), np.uint8)

    def resize(part: slice) -> None:
        crop_kernels.resize(rows, columns, plan.box[part], plan.flip[part], crops[part])

    parallel_for(resize, len(plan))
    return crops


def mix(
    plan: AugMixPlan,
    crops: np.ndarray,
    mean: Sequence[float] = NO_NORMALISATION[0],
    std: Sequence[float] = NO_NORMALISATION[1],
) -> Tensor:
    """Return normalised views, float32, of crops, uint8 (n, 3, height, width)."""
    n, channels, height, width = crops.shape
    flat = crops.reshape(n, channels, height * width)
    views = np.empty(flat.shape, np.float32)
    scale = (1 / (255 * np.array(std))).astype(np.float32)
    offset = (-np.array(mean) / np.array(std)).astype(np.float32)
    fill = np.array(FILL, np.uint8)

    def mix_part(part: slice) -> None:
        chains = plan.operations[part], plan.parameters[part], plan.weights[part], plan.keep[part]
        augmix_kernels.mix(flat[part], width, *chains, scale, offset, fill, views[part])

    parallel_for(mix_part, n)
    return torch.from_numpy(views.reshape(crops.shape))
