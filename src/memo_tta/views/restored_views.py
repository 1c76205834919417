"""Translated and mirrored views of the image and of restored versions of it: one group per version.

Networks for small images are trained on translated ones. `restored_versions` has the views of large images.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.image import Size, height_and_width
from memo_tta.views.augmix_plan import CropPlan, plan_even_crops
from memo_tta.views.crop_flip import check_request, check_size, padding_of
from memo_tta.views.restoration import RESTORATIONS

# Chosen on validation shifts and clean images: docs/beyond.md.
DEFAULT_SHARES = MappingProxyType({"plain": 1, "restored": 2})


class Restore:
    """Views of the image and its restorations; `shares` are their relative numbers of shifted views."""

    def __init__(self, size: Size, shares: Mapping[str, int] = DEFAULT_SHARES):
        if not shares:
            raise ConfigError("shares: expected at least one version of the image, got none")
        for name, share in shares.items():
            _ = RESTORATIONS[name]
            if share < 1:
                raise ConfigError(f"shares: expected at least 1 for {name!r}, got {share}")
        self._size, self._shares = size, dict(shares)
        self._padding = padding_of(size)

    def groups(self, n: int) -> dict[str, int]:
        """Return the number of views of each version, in order; a version without any is left out."""
        ends = np.cumsum([0, *self._shares.values()])
        counts = np.diff(-(-n * ends // ends[-1])).tolist()  # rounded up, in favour of the first versions
        return {name: count for name, count in zip(self._shares, counts, strict=True) if count}

    def __call__(
        self, image: np.ndarray, n: int, rng: np.random.Generator, device: torch.device | str = "cpu"
    ) -> Tensor:
        """Return n views of a uint8 image, grouped: float32 (n, channels, height, width) in 0..1."""
        check_request(image, n)
        check_size(image, self._size)
        return self._views(to_float(image, device), self.groups(n), rng)

    def _views(self, x: Tensor, counts: Mapping[str, int], rng: np.random.Generator) -> Tensor:
        views = list[Tensor]()
        for name, count in counts.items():
            version = RESTORATIONS[name](x).clamp(0, 1)
            views += self._shifted(version, plan_even_crops(self._size, self._padding, count, rng))
        return torch.stack(views)

    def _shifted(self, version: Tensor, crops: CropPlan) -> Iterator[Tensor]:
        down, right = height_and_width(self._padding)
        padded = F.pad(version, (right, right, down, down))
        for (top, left, height, width), flip in zip(crops.box, crops.flip, strict=True):
            view = padded[:, top : top + height, left : left + width]
            yield view.flip(2) if flip else view

    def normalised(
        self,
        image: np.ndarray,
        n: int,
        rng: np.random.Generator,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Return the same views normalised and on the device."""
        views = self(image, n, rng, device)
        centre, spread = (views.new_tensor(values).view(-1, 1, 1) for values in (mean, std))
        return (views - centre) / spread

    def preview(self, image: np.ndarray, n: int, rng: np.random.Generator) -> Tensor:
        """Return n views of the first two versions, so that a gate sees what restoring changes."""
        check_request(image, n)
        check_size(image, self._size)
        first = dict.fromkeys(list(self._shares)[:2], 1)
        return self._views(to_float(image), Restore(self._size, first).groups(n), rng)


def to_float(image: np.ndarray, device: torch.device | str = "cpu") -> Tensor:
    """Return a uint8 (height, width, channels) image as float32 (channels, height, width) in 0..1."""
    return torch.from_numpy(image.copy()).to(device).permute(2, 0, 1).float().div_(255)
