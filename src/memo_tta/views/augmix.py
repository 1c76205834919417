"""AugMix views (Hendrycks et al., 2020) as the MEMO paper's code makes them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from memo_tta.image import Size
from memo_tta.views import augmix_torch
from memo_tta.views.augmix_plan import NO_NORMALISATION, AugMixPlan, plan_augmix
from memo_tta.views.crop_flip import build_crop, check_request
from memo_tta.views.execution import cpu_execution


class AugMix:
    """AugMix at the paper's settings. `crop` is "padded" (up to 64 pixels), "resized" (above) or "mild"."""

    def __init__(self, size: Size, crop: str | None = None):
        self.size = size
        self._crop = build_crop(size, crop)

    @property
    def whole_image(self) -> bool:
        """Whether views are cropped from the image as loaded, rather than from its resized centre."""
        return self._crop.whole_image

    def plan(self, image: np.ndarray, n: int, rng: np.random.Generator) -> AugMixPlan:
        """Draw everything that is random about n views."""
        check_request(image, n)
        return plan_augmix(self._crop.plan(image, n, rng), self.size, rng)

    def __call__(self, image: np.ndarray, n: int, rng: np.random.Generator) -> Tensor:
        """Return n views of a uint8 image, channels last: float32 (n, channels, height, width) in 0..1."""
        return self.normalised(image, n, rng, *NO_NORMALISATION)

    def normalised(
        self,
        image: np.ndarray,
        n: int,
        rng: np.random.Generator,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Return the same views normalised and on the device, without another pass over them."""
        plan = self.plan(image, n, rng)
        crops = self._crop.cut(image, plan.crops)
        if torch.device(device).type == "cpu":
            return cpu_execution().mix(plan, crops, mean, std)
        return augmix_torch.mix(plan, crops, device, mean, std)
