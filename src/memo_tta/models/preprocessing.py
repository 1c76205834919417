"""Preprocessing of images to normalised tensors, and its inverse."""

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.image import INTERPOLATIONS, ImageLike, Size, fit_image, height_and_width, read_channels

RGB = 3  # channels
MAX_CHANNELS = 4


@dataclass(frozen=True)
class Preprocessing:
    """Resize to `resize`, crop the centre to `size`, scale to 0..1, normalise.

    A size is the pixels per side of a square, or (height, width). `resize` is the length of the shorter side,
    or the (height, width) to which the whole image is squashed; None makes it just large enough for the crop.
    `mean` and `std` are one number per channel, or one for all `channels` (three by default). Images are
    converted to grey for one channel; for 2 or 4 channels, they are arrays.
    """

    size: Size
    mean: Sequence[float]
    std: Sequence[float]
    resize: Size | None = None
    interpolation: str = "bilinear"
    channels: InitVar[int | None] = None

    def __post_init__(self, channels: int | None) -> None:
        size = _as_square(_size("size", self.size))
        resize = None if self.resize is None else _size("resize", self.resize)
        _check_crop(size, resize)
        mean, std = _numbers("mean", self.mean), _numbers("std", self.std)
        count = channels or max((values.size for values in (mean, std) if values.ndim), default=RGB)
        if not 1 <= count <= MAX_CHANNELS:
            raise ConfigError(f"channels: expected 1 to {MAX_CHANNELS}, got {count}")
        for name, values in (("mean", mean), ("std", std)):
            if values.ndim and values.size != count:
                raise ConfigError(f"{name}: expected {count} numbers, got {values.tolist()}")
        _check_range(mean, std)
        _ = INTERPOLATIONS[self.interpolation]
        canonical = {"size": size, "resize": resize, "mean": _repeat(mean, count), "std": _repeat(std, count)}
        for name, value in canonical.items():
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image as the module takes it: channels, height, width."""
        return len(self.mean), *height_and_width(self.size)

    @property
    def shorter_side(self) -> int:
        """The pixels to which the shorter side of an image is resized, or more."""
        return min(height_and_width(self.resize or self.size))

    def read(self, source: ImageLike) -> np.ndarray:
        """Return an image as loaded, uint8 (height, width, channels)."""
        return read_channels(source, len(self.mean))

    def fit(self, image: np.ndarray) -> np.ndarray:
        """Resize a uint8 (height, width, channels) image, and crop it to `size`."""
        return fit_image(image, self.size, self.resize, self.interpolation)

    def normalise(self, x: Tensor) -> Tensor:
        """Normalise a tensor (..., channels, height, width) in 0..1."""
        mean, std = self._constants(x)
        return (x - mean) / std

    def denormalise(self, x: Tensor) -> np.ndarray:
        """Return the uint8 image, channels last, of a normalised (channels, height, width) tensor."""
        mean, std = self._constants(x)
        pixels = torch.nan_to_num((x * std + mean) * 255).round().clamp(0, 255)
        return pixels.to(torch.uint8).permute(1, 2, 0).cpu().numpy()

    def _constants(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_tensor(self.mean).view(-1, 1, 1), x.new_tensor(self.std).view(-1, 1, 1)


def replaced(found: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a model with those given in their place; a given size leaves `resize` out."""
    kept = {name: value for name, value in found.items() if name != "resize" or "size" not in given}
    return {**kept, **given}


def _size(name: str, value: Any) -> Size:
    """Return a size as an int or as (height, width)."""
    pair = value if isinstance(value, Sequence) else (value, value)
    try:
        sides = [index(side) for side in pair]
    except TypeError:
        sides = []
    if len(sides) != 2:
        raise ConfigError(f"{name}: expected pixels per side, or (height, width), got {value!r}")
    height, width = sides
    if min(sides) < 1:
        raise ConfigError(f"{name}: expected at least 1 pixel, got {value}")
    return (height, width) if pair is value else height


def _as_square(size: Size) -> Size:
    """Return an int for a square; as `resize`, a pair would mean something else."""
    return size[0] if isinstance(size, tuple) and size[0] == size[1] else size


def _check_crop(size: Size, resize: Size | None) -> None:
    """Raise an error if the crop does not fit into every image after resizing."""
    crop = height_and_width(size)
    if isinstance(resize, tuple):
        fits = resize[0] >= crop[0] and resize[1] >= crop[1]
    else:
        fits = resize is None or resize >= max(crop)
    if not fits:
        longer = "the longer side of " if isinstance(size, tuple) and isinstance(resize, int) else ""
        raise ConfigError(f"resize: expected at least {longer}size ({size}), got {resize}")


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.ndim > 1 or not numbers.size or not np.isfinite(numbers).all():
        raise ConfigError(f"{name}: expected one number, or one per channel, got {values!r}")
    return numbers


def _check_range(mean: np.ndarray, std: np.ndarray) -> None:
    """Raise an error if mean and std are not those of pixels in 0..1."""
    if std.min() <= 0:
        raise ConfigError(f"std: expected numbers above 0, got {std.tolist()}")
    for name, values in (("mean", mean), ("std", std)):
        if values.min() < 0 or values.max() > 1:
            raise ConfigError(
                f"{name}: expected numbers in 0..1, as pixels are scaled to 0..1, got {values.tolist()}: "
                "divide mean and std by 255 if they are those of pixels in 0..255"
            )


def _repeat(values: np.ndarray, channels: int) -> tuple[float, ...]:
    return tuple(np.broadcast_to(values, channels).tolist())
