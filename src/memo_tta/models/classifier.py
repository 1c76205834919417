"""A module together with what it was trained on, so that preprocessing cannot be guessed wrong."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from memo_tta.errors import ConfigError, InputError, ModelError
from memo_tta.image import ImageLike, read_image
from memo_tta.models.preprocessing import CHANNELS, Preprocessing


@dataclass(frozen=True)
class Point:
    """One test input: as the module takes it, and as augmentations take it."""

    x: Tensor  # one input of the module, without the batch axis
    fitted: Any  # an image resized and cropped, uint8 (size, size, 3); of other inputs, x
    whole: Any  # an image as loaded, uint8 (height, width, 3); of other inputs, x


class Classifier:
    """Any module from inputs to logits [N, K].

    For images give `size`, `mean` and `std` (and `resize`, if the shorter side is resized to more
    than `size` before the centre crop). Without `size` the inputs are tensors, used as they are.
    `labels` names the classes. `settings` are the MEMO options that suit this model. `channels_last`
    hands over images in the layout that convolutions are faster with, on most machines; a module that
    calls `.view` on what a convolution returns cannot take it.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        size: int | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        labels: Sequence[str] | None = None,
        resize: int | None = None,
        interpolation: str = "bilinear",
        settings: Mapping[str, Any] | None = None,
        channels_last: bool = False,
    ):
        if not isinstance(module, nn.Module):
            raise ConfigError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
        self.module = module
        labels = _own_labels(module) if labels is None else labels
        self.labels = None if labels is None else tuple(labels)
        self.settings = dict(settings or {})
        self.channels_last = channels_last
        self.preprocessing: Preprocessing | None = None
        self._classes: Tensor | None = None
        if size is not None:
            if mean is None or std is None:
                raise ConfigError("Classifier: images need mean and std: those the module was trained with")
            self.preprocessing = Preprocessing(size, mean, std, resize, interpolation)
        elif mean is not None or std is not None or resize is not None:
            raise ConfigError("Classifier: mean, std and resize are for images: give size too")

    @property
    def size(self) -> int | None:
        return self.preprocessing and self.preprocessing.size

    def point(self, source: ImageLike | Tensor | Point) -> Point:
        """A path, PIL image or array, prepared; a classifier without `size` takes its own tensors."""
        if isinstance(source, Point):
            return source
        if self.preprocessing is None:
            if not isinstance(source, Tensor):
                raise InputError(
                    f"input: expected a tensor, got {type(source).__name__}: "
                    "a classifier of images needs size, mean and std"
                )
            return self.tensor_point(source)
        if isinstance(source, Tensor):
            raise InputError(
                "image: got a tensor: call the method itself with a normalised batch [N, 3, H, W]"
            )
        whole = read_image(source)
        fitted = np.array(self.preprocessing.fit(whole))
        pixels = torch.from_numpy(fitted.transpose(2, 0, 1)).float() / 255
        return Point(self.preprocessing.normalise(pixels), fitted, whole)

    def tensor_point(self, x: Tensor) -> Point:
        """One input as the module takes it: for images, normalised (3, size, size)."""
        x = x.detach()
        if x.numel() == 0:
            raise InputError(f"input: the tensor is empty, its shape is {tuple(x.shape)}")
        if self.preprocessing is None:
            return Point(x, x, x)
        expected = (CHANNELS, self.preprocessing.size, self.preprocessing.size)
        if x.shape != expected or not x.is_floating_point():
            raise InputError(
                f"input: expected a normalised float tensor [N, {', '.join(map(str, expected))}], "
                f"got {x.dtype} [N, {', '.join(map(str, x.shape))}]"
            )
        image = self.preprocessing.denormalise(x)
        return Point(x, image, image)

    def normalise(self, views: Tensor) -> Tensor:
        """Views in 0..1 as the module takes them; views of other inputs are taken as they are."""
        return views if self.preprocessing is None else self.preprocessing.normalise(views)

    def pictures(self, views: Tensor) -> list[np.ndarray]:
        """Normalised views as uint8 (height, width, 3) images, to look at."""
        if self.preprocessing is None:
            raise ConfigError("Classifier: only views of images can be shown")
        return [self.preprocessing.denormalise(view) for view in views]

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.module.parameters()), torch.device("cpu"))

    def to_module(self, x: Tensor) -> Tensor:
        """x on the module's device, in its layout and, if it holds floats, in its precision."""
        dtypes = (p.dtype for p in self.module.parameters() if p.is_floating_point())
        dtype = next(dtypes, x.dtype) if x.is_floating_point() else x.dtype
        is_last = self.channels_last and x.ndim == 4 and _survives_channels_last(self.module)
        return x.to(
            self.device, dtype, memory_format=torch.channels_last if is_last else torch.preserve_format
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [N, K] of inputs on any device; K counts the classes of the subset."""
        logits = _logits(self.module(self.to_module(x)))
        if logits.ndim != 2 or len(logits) != len(x) or logits.shape[1] < 2:
            raise ModelError(
                f"{self.name}: expected logits of shape [{len(x)}, K] with K of at least 2, "
                f"got {list(logits.shape)}"
            )
        if self._classes is None:
            self._check_labels(logits.shape[1])
            return logits
        if self._classes.max() >= logits.shape[1]:
            raise ModelError(
                f"{self.name}: the subset names class {int(self._classes.max())}, "
                f"but the module has {logits.shape[1]} classes"
            )
        return logits[:, self._classes.to(logits.device)]

    def subset(self, indices: Sequence[int]) -> "Classifier":
        """The same module over some classes: logits are cut before objective and prediction."""
        chosen = [int(index) for index in indices]
        if len(chosen) < 2 or len(set(chosen)) < len(chosen):
            raise ConfigError(f"subset: expected at least 2 different classes, got {chosen[:8]}")
        last = max(chosen) if self.labels is None else len(self.labels) - 1
        if min(chosen) < 0 or max(chosen) > last:
            raise ConfigError(
                f"subset: expected class indices in 0..{last}, got {min(chosen)}..{max(chosen)}"
            )
        part = copy(self)
        part.labels = self.labels and tuple(self.labels[index] for index in chosen)
        classes = torch.tensor(chosen)
        part._classes = classes if self._classes is None else self._classes[classes]
        return part

    def cropped(self) -> "Classifier":
        """The same module for images that were resized and cropped already, as ImageNet-C's were."""
        part = copy(self)
        part.preprocessing = self.preprocessing and replace(self.preprocessing, resize=None)
        return part

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def _check_labels(self, classes: int) -> None:
        if self.labels is not None and len(self.labels) != classes:
            raise ModelError(f"{self.name}: has {classes} classes, but {len(self.labels)} labels were given")


def _survives_channels_last(module: nn.Module) -> bool:
    """Torch's backward pass of group norm crashes in that layout where its input needs no gradient."""
    if not torch.is_grad_enabled() or not any(isinstance(layer, nn.GroupNorm) for layer in module.modules()):
        return True
    layers = (layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None)
    is_first = isinstance(next(layers), nn.GroupNorm)
    return not is_first and all(p.requires_grad for p in module.parameters())


def _own_labels(module: nn.Module) -> Sequence[str] | None:
    """The class names that models of Hugging Face carry in their configuration."""
    names = getattr(getattr(module, "config", None), "id2label", None)
    return [str(names[index]) for index in sorted(names)] if isinstance(names, Mapping) and names else None


def _logits(output: Any) -> Tensor:
    """The logits of a module that returns a tensor, a dict with "logits" or an object with .logits."""
    if isinstance(output, Mapping):
        output = output.get("logits", output)
    output = getattr(output, "logits", output)
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise ModelError(f"module: expected float logits, or an output with .logits, got {kind}")
    return output
