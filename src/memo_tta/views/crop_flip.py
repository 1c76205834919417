"""The standard augmentation: a random crop and a random mirror image."""

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import ConfigError, InputError
from memo_tta.registry import Registry
from memo_tta.views.augmix_plan import CropPlan, plan_padded_crops, plan_resized_crops
from memo_tta.views.threads import spread

# Below this size images are padded and cropped, as for CIFAR; above, cropped at random and resized.
PADDED_UP_TO = 64


class PaddedCrop:
    """Pad every side with zeros, by an eighth (4 pixels at 32), and cut out the size."""

    whole_image = False

    def __init__(self, size: int):
        self.size = size
        self.padding = size // 8

    def plan(self, image: np.ndarray, n: int, rng: np.random.Generator) -> CropPlan:
        check_square(image, self.size, ", or use crop='resized'")
        return plan_padded_crops(self.size, self.padding, n, rng)

    def cut(self, image: np.ndarray, plan: CropPlan) -> np.ndarray:
        """The n crops, uint8 (n, 3, size, size)."""
        from memo_tta.views.crop_kernels import cut  # compiled code: it takes a moment to load

        rim = (self.padding, self.padding)
        padded = np.pad(image.transpose(2, 0, 1), ((0, 0), rim, rim))
        crops = np.empty((len(plan), 3, self.size, self.size), np.uint8)
        cut(padded, plan.box, plan.flip, crops)
        return crops


class ResizedCrop:
    """A crop of random area and aspect of the image as loaded, resized; as for ImageNet."""

    whole_image = True

    def __init__(self, size: int):
        self.size = size

    def plan(self, image: np.ndarray, n: int, rng: np.random.Generator) -> CropPlan:
        height, width = image.shape[:2]
        return plan_resized_crops(height, width, n, rng)

    def cut(self, image: np.ndarray, plan: CropPlan) -> np.ndarray:
        """The n crops, uint8 (n, 3, size, size)."""
        from memo_tta.views.crop_kernels import resize

        rows, columns = image.transpose(2, 0, 1).copy(), image.transpose(2, 1, 0).copy()
        crops = np.empty((len(plan), 3, self.size, self.size), np.uint8)
        spread(lambda part: resize(rows, columns, plan.box[part], plan.flip[part], crops[part]), len(plan))
        return crops


CROPS = Registry("crop", {"padded": PaddedCrop, "resized": ResizedCrop})


def check_request(image: np.ndarray, n: int) -> None:
    """Refuse what no augmentation of pictures can work on."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise InputError(
            f"views: expected a uint8 image of shape (height, width, 3), got {image.dtype} {image.shape}"
        )
    if n < 1:
        raise ConfigError(f"n_views: expected at least 1, got {n}")


def check_square(image: np.ndarray, size: int, instead: str = "") -> None:
    if image.shape[:2] != (size, size):
        raise InputError(
            f"views: padded crops need an image of {size} x {size} pixels, "
            f"got {image.shape[1]} x {image.shape[0]}: resize it first{instead}"
        )


def build_crop(size: int, crop: str | None) -> PaddedCrop | ResizedCrop:
    if size < 1:
        raise ConfigError(f"size: expected at least 1, got {size}")
    return CROPS[crop or ("padded" if size <= PADDED_UP_TO else "resized")](size)


class CropFlip:
    """The standard views: random crop and flip. `crop` is "padded" (small images) or "resized"."""

    def __init__(self, size: int, crop: str | None = None):
        self._crop = build_crop(size, crop)

    @property
    def whole_image(self) -> bool:
        """Whether views are cut from the image as loaded, not from its resized centre."""
        return self._crop.whole_image

    def __call__(self, image: np.ndarray, n: int, rng: np.random.Generator) -> Tensor:
        """n views of a uint8 (height, width, 3) image: float32 (n, 3, size, size) in 0..1."""
        check_request(image, n)
        crops = self._crop.cut(image, self._crop.plan(image, n, rng))
        return torch.from_numpy(crops).float().div_(255)
