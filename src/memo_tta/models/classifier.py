"""A module with its preprocessing and labels."""

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
    """One test input, as the module takes it and as augmentations take it."""

    x: Tensor  # the module's input, without the batch dimension
    fitted: Any  # the image resized and cropped, uint8 (size, size, 3); x if the input is no image
    whole: Any  # the image as loaded, uint8 (height, width, 3); x if the input is no image


class Classifier:
    """A module from inputs to logits [N, K], with its preprocessing and labels.

    For images, give `size`, `mean` and `std` (and `resize`, if the shorter side is resized to more than
    `size` before the centre crop). Without `size`, inputs are tensors that are passed to the module as they
    are. `labels` are the class names. `settings` are the MEMO options that suit this model. `channels_last`
    passes images in the memory format in which most machines compute convolutions faster; a module that calls
    `.view` on the output of a convolution does not support it.
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
        labels = _config_labels(module) if labels is None else labels
        self.labels = None if labels is None else tuple(labels)
        self.settings = dict(settings or {})
        self.channels_last = channels_last
        self.preprocessing: Preprocessing | None = None
        self._classes: Tensor | None = None
        if size is not None:
            if mean is None or std is None:
                raise ConfigError(
                    "Classifier: size needs mean and std: give those that the module was trained with"
                )
            self.preprocessing = Preprocessing(size, mean, std, resize, interpolation)
        elif mean is not None or std is not None or resize is not None:
            raise ConfigError(
                "Classifier: mean, std and resize need size: give the size of the module's input images"
            )

    @property
    def size(self) -> int | None:
        return self.preprocessing and self.preprocessing.size

    def point(self, source: ImageLike | Tensor | Point) -> Point:
        """Preprocess a path, PIL image or array; without `size`, take a tensor as it is."""
        if isinstance(source, Point):
            return source
        if self.preprocessing is None:
            if not isinstance(source, Tensor):
                raise InputError(
                    f"input: expected a tensor, got {type(source).__name__}: "
                    "to pass images, give Classifier size, mean and std"
                )
            return self.tensor_point(source)
        if isinstance(source, Tensor):
            raise InputError(
                "image: expected a path, PIL image or array, got a tensor: "
                "for a normalised batch [N, 3, H, W], call the method itself"
            )
        whole = read_image(source)
        fitted = np.array(self.preprocessing.fit(whole))
        pixels = torch.from_numpy(fitted.transpose(2, 0, 1)).float() / 255
        return Point(self.preprocessing.normalise(pixels), fitted, whole)

    def tensor_point(self, x: Tensor) -> Point:
        """Wrap one input of the module; an image is a normalised tensor (3, size, size)."""
        x = x.detach()
        if x.numel() == 0:
            raise InputError(
                f"input: expected at least one value, got an empty tensor of shape {tuple(x.shape)}"
            )
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
        """Normalise views of images in 0..1; return other views as they are."""
        return views if self.preprocessing is None else self.preprocessing.normalise(views)

    def pictures(self, views: Tensor) -> list[np.ndarray]:
        """Return normalised views as uint8 (height, width, 3) images."""
        if self.preprocessing is None:
            raise ConfigError(
                "Classifier: only views of images can be shown, and this classifier takes tensors"
            )
        return [self.preprocessing.denormalise(view) for view in views]

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.module.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the module's floating-point parameters; None if it has none."""
        return next((p.dtype for p in self.module.parameters() if p.is_floating_point()), None)

    def prepare_input(self, x: Tensor) -> Tensor:
        """Move x to the module's device and memory format and, if it holds floats, to the module's dtype."""
        dtype = self.dtype or x.dtype if x.is_floating_point() else x.dtype
        is_channels_last = self.channels_last and x.ndim == 4 and _supports_channels_last(self.module)
        memory_format = torch.channels_last if is_channels_last else torch.preserve_format
        return x.to(self.device, dtype, memory_format=memory_format)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits [N, K] of inputs on any device; K is the number of classes, or of the subset."""
        logits = _logits(self.module(self.prepare_input(x)))
        if logits.ndim != 2 or len(logits) != len(x) or logits.shape[1] < 2:
            raise ModelError(
                f"{self.name}: expected logits of shape [{len(x)}, K] with K at least 2, "
                f"got {list(logits.shape)}"
            )
        if self._classes is None:
            self._check_labels(logits.shape[1])
            return logits
        if self._classes.max() >= logits.shape[1]:
            raise ModelError(
                f"{self.name}: the subset contains class {int(self._classes.max())}, "
                f"but the module has {logits.shape[1]} classes"
            )
        return logits[:, self._classes.to(logits.device)]

    def subset(self, indices: Sequence[int]) -> "Classifier":
        """Return a classifier of some of the classes; logits are reduced before objective and prediction."""
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
        """Return a classifier for images that are already resized and cropped, such as ImageNet-C's."""
        part = copy(self)
        part.preprocessing = self.preprocessing and replace(self.preprocessing, resize=None)
        return part

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def _check_labels(self, classes: int) -> None:
        if self.labels is not None and len(self.labels) != classes:
            raise ModelError(f"{self.name}: expected {classes} labels, one per class, got {len(self.labels)}")


def _supports_channels_last(module: nn.Module) -> bool:
    """Return False where torch's backward pass would crash: group norm whose input needs no gradient."""
    if not torch.is_grad_enabled() or not any(isinstance(layer, nn.GroupNorm) for layer in module.modules()):
        return True
    layers = (layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None)
    is_first = isinstance(next(layers), nn.GroupNorm)
    return not is_first and all(p.requires_grad for p in module.parameters())


def _config_labels(module: nn.Module) -> Sequence[str] | None:
    """Return the class names in the configuration of a Hugging Face model, or None."""
    names = getattr(getattr(module, "config", None), "id2label", None)
    return [str(names[index]) for index in sorted(names)] if isinstance(names, Mapping) and names else None


def _logits(output: Any) -> Tensor:
    """Return the logits of an output: a tensor, a dict with "logits" or an object with .logits."""
    if isinstance(output, Mapping):
        output = output.get("logits", output)
    output = getattr(output, "logits", output)
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise ModelError(f"module: expected float logits, or an output with .logits, got {kind}")
    return output
