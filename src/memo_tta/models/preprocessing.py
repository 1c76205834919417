"""Preprocessing of images to normalised tensors, and its inverse."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.image import INTERPOLATIONS, fit_square

CHANNELS = 3


@dataclass(frozen=True)
class Preprocessing:
    """Resize the shorter side to `resize`, crop the centre to `size`, scale to 0..1, normalise."""

    size: int
    mean: Sequence[float]
    std: Sequence[float]
    resize: int | None = None  # None: the same as `size`
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size: expected at least 1 pixel, got {self.size}")
        if self.resize is not None and self.resize < self.size:
            raise ConfigError(f"resize: expected at least size ({self.size}), got {self.resize}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != CHANNELS:
                raise ConfigError(f"{name}: expected {CHANNELS} numbers, got {values!r}")
        if min(self.std) <= 0:
            raise ConfigError(f"std: expected numbers above 0, got {self.std!r}")
        _ = INTERPOLATIONS[self.interpolation]

    def fit(self, image: np.ndarray) -> np.ndarray:
        """Resize and crop a uint8 (height, width, 3) image to uint8 (size, size, 3)."""
        return fit_square(image, self.resize or self.size, self.size, self.interpolation)

    def normalise(self, x: Tensor) -> Tensor:
        """Normalise a tensor (..., 3, height, width) in 0..1."""
        mean, std = self._constants(x)
        return (x - mean) / std

    def denormalise(self, x: Tensor) -> np.ndarray:
        """Return the uint8 (height, width, 3) image of a normalised (3, height, width) tensor."""
        mean, std = self._constants(x)
        pixels = torch.nan_to_num((x * std + mean) * 255).round().clamp(0, 255)
        return pixels.to(torch.uint8).permute(1, 2, 0).cpu().numpy()

    def _constants(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shape = (CHANNELS, 1, 1)
        return x.new_tensor(self.mean).view(shape), x.new_tensor(self.std).view(shape)
