"""The standard augmentation: a random crop and a random horizontal flip."""

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import ConfigError, InputError
from memo_tta.image import Size, height_and_width
from memo_tta.registry import Registry
from memo_tta.views.augmix_plan import (
    CROP_AREA,
    MILD_CROP_AREA,
    CropPlan,
    plan_padded_crops,
    plan_resized_crops,
)
from memo_tta.views.execution import cpu_execution

# Images up to this size are padded and cropped, as for CIFAR; larger ones are cropped and resized.
PADDED_UP_TO = 64
MAX_CHANNELS = 4


class PaddedCrop:
    """Zero-pad every side by an eighth of the size (4 pixels at 32), then crop to the size."""

    whole_image = False

    def __init__(self, size: Size):
        self.size = size
        self.padding = padding_of(size)

    def plan(self, image: np.ndarray, n: int, rng: np.random.Generator) -> CropPlan:
        check_size(image, self.size, ", or use crop='resized'")
        return plan_padded_crops(self.size, self.padding, n, rng)

    def cut(self, image: np.ndarray, plan: CropPlan) -> np.ndarray:
        """Return the n crops, uint8 (n, channels, height, width)."""
        return cpu_execution().padded_crops(image, plan, self.size, self.padding)


class ResizedCrop:
    """Crop the image as loaded, with random area and aspect ratio, and resize, as for ImageNet."""

    whole_image = True
    area = CROP_AREA

    def __init__(self, size: Size):
        self.size = size

    def plan(self, image: np.ndarray, n: int, rng: np.random.Generator) -> CropPlan:
        height, width = height_and_width(self.size)
        return plan_resized_crops(image.shape[0], image.shape[1], n, rng, self.area, width / height)

    def cut(self, image: np.ndarray, plan: CropPlan) -> np.ndarray:
        """Return the n crops, uint8 (n, channels, height, width)."""
        return cpu_execution().resized_crops(image, plan, self.size)


class MildCrop(ResizedCrop):
    """Crop most of the image that the classifier sees, and resize."""

    whole_image = False
    area = MILD_CROP_AREA


CROPS = Registry("crop", {"padded": PaddedCrop, "resized": ResizedCrop, "mild": MildCrop})


def check_request(image: np.ndarray, n: int) -> None:
    """Raise an error if the image is not uint8 with its channels last, or n is less than 1."""
    is_image = image.ndim == 3 and image.shape[2] <= MAX_CHANNELS and image.size > 0
    if not is_image or image.dtype != np.uint8:
        raise InputError(
            "views: expected a uint8 image of shape (height, width, 3), or with 1, 2 or 4 channels, "
            f"got {image.dtype} {image.shape}"
        )
    if n < 1:
        raise ConfigError(f"n_views: expected at least 1, got {n}")


def check_size(image: np.ndarray, size: Size, alternative: str = "") -> None:
    """Raise an error if the image is not of this size; `alternative` ends the message."""
    height, width = height_and_width(size)
    if image.shape[:2] != (height, width):
        raise InputError(
            f"views: expected an image of {width} x {height} pixels, "
            f"got {image.shape[1]} x {image.shape[0]}: resize it first{alternative}"
        )


def is_large(size: Size) -> bool:
    """Return whether images of this size are cropped as large ones: neither padded nor translated."""
    return max(height_and_width(size)) > PADDED_UP_TO


def padding_of(size: Size) -> Size:
    """Return by how many pixels the sides of small images are padded: an eighth."""
    return size // 8 if isinstance(size, int) else (size[0] // 8, size[1] // 8)


def build_crop(size: Size, crop: str | None) -> PaddedCrop | ResizedCrop:
    """Return the named kind of crop, or by default the one that suits the size."""
    if min(height_and_width(size)) < 1:
        raise ConfigError(f"size: expected at least 1, got {size}")
    return CROPS[crop or ("resized" if is_large(size) else "padded")](size)


class CropFlip:
    """Random crop and flip. `crop` is "padded" (up to 64 pixels), "resized" (above) or "mild"."""

    def __init__(self, size: Size, crop: str | None = None):
        self._crop = build_crop(size, crop)

    @property
    def whole_image(self) -> bool:
        """Whether views are cropped from the image as loaded, rather than from its resized centre."""
        return self._crop.whole_image

    def __call__(self, image: np.ndarray, n: int, rng: np.random.Generator) -> Tensor:
        """Return n views of a uint8 image, channels last: float32 (n, channels, height, width) in 0..1."""
        check_request(image, n)
        crops = self._crop.cut(image, self._crop.plan(image, n, rng))
        return torch.from_numpy(crops).float().div_(255)
