"""MEMO as the published code runs it: AugMix with Pillow, one view at a time, and the loop over images.

The tests use these views as the independent reference for our own implementations of AugMix.
"""

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from memo_tta.objectives import marginal_entropy
from memo_tta.views import AugMix
from memo_tta.views.augmix_plan import NO_OPERATION, OPERATIONS, AugMixPlan

# The published code passes the integer 128, which Pillow interprets as packed RGB: dark red.
FILL = (128, 0, 0)
BILINEAR = Image.Resampling.BILINEAR
HALF = (0.5, 0.5, 0.5)  # mean and std of CIFAR models
NO_MEAN, NO_STD = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)  # leave pixels in 0..1


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    """Warp so that output pixel (x, y) shows input (ax + by + c, dx + ey + f), for the matrix a..f."""
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


def padded_crop(image: Image.Image, box: Sequence[int], size: int) -> Image.Image:
    """Pad by an eighth of the size and crop the box (top, left, height, width)."""
    top, left, height, width = box
    return ImageOps.expand(image, size // 8).crop((left, top, left + width, top + height))


def resized_crop(image: Image.Image, box: Sequence[int], size: int) -> Image.Image:
    """Crop the box (top, left, height, width) and resize it to size x size."""
    top, left, height, width = box
    return image.crop((left, top, left + width, top + height)).resize((size, size), BILINEAR)


CROPS = {"padded": padded_crop, "resized": resized_crop}


def make_views(
    image: np.ndarray,
    plan: AugMixPlan,
    size: int,
    crop: str,
    mean: Sequence[float] = NO_MEAN,
    std: Sequence[float] = NO_STD,
) -> Tensor:
    """Return the views of a plan, normalised: float32 (n, 3, size, size)."""
    picture = Image.fromarray(image)
    crops = (
        mirrored(CROPS[crop](picture, box, size), flip)
        for box, flip in zip(plan.crops.box.tolist(), plan.crops.flip.tolist(), strict=True)
    )
    return mix(plan, crops, mean, std)


def make_views_one_by_one(
    augment: AugMix,
    image: np.ndarray,
    n: int,
    rng: np.random.Generator,
    crop: str,
    mean: Sequence[float],
    std: Sequence[float],
) -> Tensor:
    """Return n views as the published code makes them: draw, apply and normalise one after the other."""
    size = augment.size
    assert isinstance(size, int)  # the published code knows squares alone
    plans = (augment.plan(image, 1, rng) for _ in range(n))
    return torch.cat([make_views(image, plan, size, crop, mean, std) for plan in plans])


def mirrored(image: Image.Image, flip: bool) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else image


def mix(
    plan: AugMixPlan, crops: Iterable[Image.Image], mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Apply the chains of operations to each crop, normalise, and mix them with their weights."""

    def to_input(image: Image.Image) -> Tensor:
        means, stds = (torch.tensor(values).view(3, 1, 1) for values in (mean, std))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.float().div(255).sub_(means).div_(stds)

    views: list[Tensor] = []
    for view, crop in enumerate(crops):
        original = to_input(crop)
        mixed = torch.zeros_like(original)
        chains = zip(plan.weights[view], plan.operations[view], plan.parameters[view], strict=True)
        for weight, operations, parameters in chains:
            mixed += weight * to_input(apply_chain(crop, operations, parameters))
        views.append(plan.keep[view] * original + (1 - plan.keep[view]) * mixed)
    return torch.stack(views)


def apply_chain(image: Image.Image, operations: np.ndarray, parameters: np.ndarray) -> Image.Image:
    """Apply operations, given by their indices, one after the other."""
    image = image.copy()
    for operation, parameter in zip(operations.tolist(), parameters.tolist(), strict=True):
        if operation != NO_OPERATION:
            image = APPLY[OPERATIONS[operation]](image, parameter)
    return image


class PublishedLoop:
    """Adapts to one image after the other, as the published script does.

    Weights are reloaded from a state dict, the optimizer is torch's SGD, views are made one by one.
    """

    def __init__(self, module: nn.Module, size: int, views: int, lr: float):
        self.module, self.size, self.views = module, size, views
        self.augment = AugMix(size, "padded")
        self.weights = {name: value.clone() for name, value in module.state_dict().items()}
        self.optimizer = torch.optim.SGD(module.parameters(), lr=lr)
        self.view_seconds = 0.0  # for the last prediction

    def predict(self, image: np.ndarray, rng: np.random.Generator) -> int:
        """Adapt to the image and return the predicted class index."""
        self.module.load_state_dict(self.weights)
        self.module.eval()
        began = perf_counter()
        views = make_views_one_by_one(self.augment, image, self.views, rng, "padded", HALF, HALF)
        self.view_seconds = perf_counter() - began
        self.optimizer.zero_grad()
        marginal_entropy(self.module(views)).backward()
        self.optimizer.step()
        pixels = torch.from_numpy(image).permute(2, 0, 1).float().div(255).sub(0.5).div(0.5)
        with torch.no_grad():
            return int(self.module(pixels[None]).argmax())
