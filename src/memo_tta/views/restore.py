"""Views of restored versions of the image: a group of crops and flips for each restoration."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from memo_tta.views.plan import CropPlan
from memo_tta.views.restorations import RESTORATIONS
from memo_tta.views.standard import PADDED_UP_TO, PaddedCrop, check_request

SMALL = 32  # pixels, of the images that filter widths are given for
# By benchmarks/choose_restorations.py, from validation corruptions and clean images.
CHOSEN = ("plain", "nonlocal", "autocontrast", "deblur")


class Restore:
    """The image as it is and restored in several ways, each shifted and mirrored at random."""

    def __init__(self, size: int, names: Sequence[str] = CHOSEN):
        self.names = tuple(names)
        for name in self.names:
            _ = RESTORATIONS[name]
        # Large images are not trained with dark borders; and none is rescaled, which would change its noise.
        self._crop = PaddedCrop(size, mirrored=size > PADDED_UP_TO)

    def groups(self, n: int) -> list[int]:
        """How many of n views show each version; fewer views than versions show the first ones."""
        return [len(part) for part in np.array_split(np.arange(n), min(n, len(self.names)))]

    def __call__(self, image: np.ndarray, n: int, rng: np.random.Generator) -> Tensor:
        """n views of a uint8 (height, width, 3) image, group by group: float32 (n, 3, size, size) in 0..1."""
        check_request(image, n)
        plan = self._crop.plan(image, n, rng)
        ends = np.cumsum(self.groups(n))[:-1]
        boxes, flips = np.split(plan.box, ends), np.split(plan.flip, ends)
        versions = self.versions(image, len(boxes))
        crops = [
            self._crop.cut(version, CropPlan(box, flip))
            for version, box, flip in zip(versions, boxes, flips, strict=True)
        ]
        return torch.from_numpy(np.concatenate(crops)).float().div_(255)

    def plain(self, image: np.ndarray, n: int, rng: np.random.Generator) -> Tensor:
        """n views of the image as it is."""
        check_request(image, n)
        return torch.from_numpy(self._crop.cut(image, self._crop.plan(image, n, rng))).float().div_(255)

    def versions(self, image: np.ndarray, count: int | None = None) -> list[np.ndarray]:
        """The image, restored in each way, or in the first ones."""
        scale = math.sqrt(min(image.shape[:2]) / SMALL)
        x = torch.from_numpy(image.transpose(2, 0, 1).copy()).float().div_(255)
        restored = (RESTORATIONS[name](x, scale) for name in self.names[:count])
        return [(255 * y).round_().clamp_(0, 255).byte().permute(1, 2, 0).numpy() for y in restored]
