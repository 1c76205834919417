"""AugMix views (Hendrycks et al., 2020) as the MEMO paper's code makes them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from memo_tta.views.augmix_plan import FILL, UNCHANGED, AugMixPlan, plan_augmix
from memo_tta.views.augmix_torch import execute_on
from memo_tta.views.crop_flip import build_crop, check_request
from memo_tta.views.threads import spread


def execute(
    plan: AugMixPlan,
    crops: np.ndarray,
    mean: Sequence[float] = UNCHANGED[0],
    std: Sequence[float] = UNCHANGED[1],
) -> Tensor:
    """Mix each crop, uint8 (n, 3, height, width), with its chains: float32, (0..1 - mean) / std."""
    from memo_tta.views.augmix_kernels import mix  # compiled code: loaded when it is needed

    n, channels, height, width = crops.shape
    flat = crops.reshape(n, channels, height * width)
    views = np.empty(flat.shape, np.float32)
    scale = (1 / (255 * np.array(std))).astype(np.float32)
    offset = (-np.array(mean) / np.array(std)).astype(np.float32)
    fill = np.array(FILL, np.uint8)

    def work(part: slice) -> None:
        chains = plan.operations[part], plan.parameters[part], plan.weights[part], plan.keep[part]
        mix(flat[part], width, *chains, scale, offset, fill, views[part])

    spread(work, n)
    return torch.from_numpy(views.reshape(crops.shape))


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
        return self.normalised(image, n, rng, *UNCHANGED)

    def normalised(
        self,
        image: np.ndarray,
        n: int,
        rng: np.random.Generator,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """The same views as a module takes them, made where it is: no pass over them is left to do."""
        plan = self.plan(image, n, rng)
        crops = self._crop.cut(image, plan.crops)
        if torch.device(device).type == "cpu":
            return execute(plan, crops, mean, std)
        return execute_on(plan, crops, device, mean, std)
