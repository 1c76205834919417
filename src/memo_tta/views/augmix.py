"""AugMix views (Hendrycks et al., 2020) as the MEMO paper's code makes them."""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from memo_tta.views.plan import NO_OPERATION, OPERATIONS, AugMixPlan, plan_augmix
from memo_tta.views.standard import build_crop, check_request

# The published code passes the integer 128, which Pillow reads as packed RGB: dark red.
FILL = (128, 0, 0)
BILINEAR = Image.Resampling.BILINEAR


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    """Each output pixel (x, y) takes the input at (ax + by + c, dx + ey + f)."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample=BILINEAR, fillcolor=FILL)


APPLY: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "rotate": lambda image, degrees: image.rotate(degrees, resample=BILINEAR, fillcolor=FILL),
    "solarize": lambda image, threshold: ImageOps.solarize(image, int(threshold)),
    "shear_x": lambda image, factor: _affine(image, 1, factor, 0, 0, 1, 0),
    "shear_y": lambda image, factor: _affine(image, 1, 0, 0, factor, 1, 0),
    "translate_x": lambda image, pixels: _affine(image, 1, 0, pixels, 0, 1, 0),
    "translate_y": lambda image, pixels: _affine(image, 1, 0, 0, 0, 1, pixels),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
}


def execute(plan: AugMixPlan, crops: np.ndarray) -> np.ndarray:
    """Mix each crop, uint8 (n, size, size, 3), with its chains: float32 (n, 3, size, size) in 0..1."""
    views = plan.keep[:, None, None, None] * crops
    for view, crop in enumerate(crops):
        image = Image.fromarray(crop)
        shares = (1 - plan.keep[view]) * plan.weights[view]
        for share, operations, parameters in zip(
            shares, plan.operations[view], plan.parameters[view], strict=True
        ):
            views[view] += share * np.asarray(_chain(image, operations, parameters), dtype=np.float32)
    views /= 255
    return np.ascontiguousarray(views.transpose(0, 3, 1, 2))


def _chain(image: Image.Image, operations: np.ndarray, parameters: np.ndarray) -> Image.Image:
    for operation, parameter in zip(operations.tolist(), parameters.tolist(), strict=True):
        if operation != NO_OPERATION:
            image = APPLY[OPERATIONS[operation]](image, parameter)
    return image


class AugMix:
    """AugMix at the paper's settings. `crop` is "padded" (up to 64 pixels) or "resized" (above)."""

    def __init__(self, size: int, crop: str | None = None):
        self.size = size
        self._crop = build_crop(size, crop)

    @property
    def whole_image(self) -> bool:
        """Whether views are cut from the image as loaded, not from its resized centre."""
        return self._crop.whole_image

    def plan(self, image: np.ndarray, n: int, rng: np.random.Generator) -> AugMixPlan:
        check_request(image, n)
        return plan_augmix(self._crop.plan(image, n, rng), self.size, rng)

    def __call__(self, image: np.ndarray, n: int, rng: np.random.Generator) -> Tensor:
        """n views of a uint8 (height, width, 3) image: float32 (n, 3, size, size) in 0..1."""
        plan = self.plan(image, n, rng)
        return torch.from_numpy(execute(plan, self._crop.cut(image, plan.crops)))
