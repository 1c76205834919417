"""A module with its preprocessing and labels."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from memo_tta.errors import ConfigError, InputError, MemoWarning, ModelError
from memo_tta.image import ImageLike, Size, to_rgb
from memo_tta.models.forward_only import FunctionModule
from memo_tta.models.labels import Labels, config_labels, read_labels
from memo_tta.models.module_checks import check_module
from memo_tta.models.preprocessing import RGB, Preprocessing

ROUNDING = 1e-4  # of a sum of probabilities


@dataclass(frozen=True)
class Point:
    """One test input, as the module takes it and as augmentations take it."""

    x: Tensor  # the module's input, without the batch dimension
    fitted: Any  # the image resized and cropped, uint8 (height, width, channels); x if the input is no image
    whole: Any  # the image as loaded, uint8 (height, width, channels); x if the input is no image


class Classifier:
    """A module from inputs to logits [N, K], with its preprocessing and labels.

    For images, give `size` (pixels per side, or height and width), `mean` and `std` (one number, or one per
    channel), and `resize`, if the shorter side is resized to more than `size` before the centre crop; a pair
    squashes the image to this height and width. `channels` is how many there are, if `mean` and `std` do not
    show it and there are not three. Without `size`, inputs are tensors that are passed on as they are.

    `labels` are the class names: a list, a dict by index, or a text file with one name per line. `settings`
    are the MEMO options that suit this model. `channels_last` passes images in the memory format in which
    most machines compute convolutions faster; a module that calls `.view` on the output of a convolution does
    not support it. Images are passed in the type of the module's parameters, or in `input_dtype`; with
    torch.uint8, they are pixels of 0..255, and `mean` and `std` are not needed.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        size: Size | None = None,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        labels: Labels | None = None,
        resize: Size | None = None,
        interpolation: str = "bilinear",
        channels: int | None = None,
        settings: Mapping[str, Any] | None = None,
        channels_last: bool = False,
        input_dtype: torch.dtype | None = None,
    ):
        check_module(module)
        self.module = module
        self.labels = config_labels(module) if labels is None else read_labels(labels)
        self.settings = dict(settings or {})
        self.channels_last = channels_last
        self.preprocessing: Preprocessing | None = None
        self._classes: Tensor | None = None
        self._input_dtype, self._is_output_checked = input_dtype, False
        if input_dtype == torch.uint8:
            mean, std = 0.0 if mean is None else mean, 1 / 255 if std is None else std
        if size is not None:
            if mean is None or std is None:
                raise ConfigError(
                    "Classifier: size needs mean and std: give those that the module was trained with"
                )
            numbers: Any = {"mean": mean, "std": std}
            self.preprocessing = Preprocessing(
                size, resize=resize, interpolation=interpolation, channels=channels, **numbers
            )
        elif mean is not None or std is not None or resize is not None:
            raise ConfigError(
                "Classifier: mean, std and resize need size: give the size of the module's input images"
            )

    @classmethod
    def from_function(
        cls, function: Callable[[Any], Any], *, takes: str = "numpy", **arguments: Any
    ) -> "Classifier":
        """Return a classifier of a function from a batch to logits [N, K], for methods that adapt nothing.

        The batch is normalised, float32 [N, channels, height, width]: an array, or with takes="tensor" a
        tensor. The logits are an array or a tensor. The other arguments are those of `Classifier`.
        """
        return cls(FunctionModule(function, takes), **arguments)

    @property
    def size(self) -> Size | None:
        """Pixels per side of square images, or height and width; None if inputs are tensors."""
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
        whole = self.preprocessing.read(source)
        fitted = np.array(self.preprocessing.fit(whole))
        pixels = torch.from_numpy(fitted.transpose(2, 0, 1)).float() / 255
        return Point(self.preprocessing.normalise(pixels), fitted, whole)

    def tensor_point(self, x: Tensor) -> Point:
        """Wrap one input of the module; an image is a normalised tensor (channels, height, width)."""
        x = x.detach()
        if x.numel() == 0:
            raise InputError(
                f"input: expected at least one value, got an empty tensor of shape {tuple(x.shape)}"
            )
        if self.preprocessing is None:
            return Point(x, x, x)
        expected = self.preprocessing.shape
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
        """Return normalised views as uint8 RGB images; channels that are not colours are averaged."""
        if self.preprocessing is None:
            raise ConfigError(
                "Classifier: only views of images can be shown, and this classifier takes tensors"
            )
        return [to_rgb(self.preprocessing.denormalise(view)) for view in views]

    @property
    def device(self) -> torch.device:
        """The device of the module's parameters; the CPU if it has none."""
        return next((p.device for p in self.module.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the module's floating-point parameters; None if it has none."""
        return next((p.dtype for p in self.module.parameters() if p.is_floating_point()), None)

    def prepare_input(self, x: Tensor) -> Tensor:
        """Move x to the module's device and memory format and, if it holds floats, to the module's dtype."""
        dtype = x.dtype
        if x.is_floating_point():
            dtype = self._input_dtype or self.dtype or x.dtype
            x = x if dtype.is_floating_point else x.round().clamp(0, 255)
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
        self._warn_of_probabilities(logits)
        if self._classes is None:
            self._check_labels(logits.shape[1])
            return logits
        if self._classes.max() >= logits.shape[1]:
            raise ModelError(
                f"{self.name}: the subset contains class {int(self._classes.max())}, "
                f"but the module has {logits.shape[1]} classes"
            )
        return self.select_classes(logits)

    def select_classes(self, logits: Tensor) -> Tensor:
        """Return the columns of the subset's classes, or all of them if there is no subset."""
        return logits if self._classes is None else logits[:, self._classes.to(logits.device)]

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

    def independent(self) -> "Classifier":
        """Return a classifier with a copy of the module."""
        part = copy(self)
        try:
            part.module = deepcopy(self.module)
        except Exception as error:  # whatever the attributes of the user's module raise
            raise ModelError(
                f"{self.name}: cannot be copied ({type(error).__name__}: {error}), and every replica needs a "
                "copy: create what cannot be copied when it is first used, or define __deepcopy__"
            ) from None
        return part

    def cropped(self) -> "Classifier":
        """Return a classifier for images that are already resized and cropped, such as ImageNet-C's."""
        part = copy(self)
        part.preprocessing = self.preprocessing and replace(self.preprocessing, resize=None)
        return part

    @property
    def name(self) -> str:
        """The name of the module's class."""
        return type(self.module).__name__

    def __repr__(self) -> str:
        chosen = self.labels if self._classes is None else self._classes
        parts = [self.name, "" if chosen is None else f"{len(chosen)} classes"]
        if self.preprocessing is not None:
            channels, height, width = self.preprocessing.shape
            parts += [f"{height}×{width} pixels", "" if channels == RGB else f"channels={channels}"]
        return f"Classifier({', '.join(filter(None, [*parts, _size(self.module)]))})"

    def _warn_of_probabilities(self, logits: Tensor) -> None:
        """Warn if the first output looks like probabilities, which another softmax makes nearly equal."""
        if self._is_output_checked:
            return
        self._is_output_checked = True
        rows = logits.detach().double()
        if ((rows >= 0) & (rows <= 1)).all() and ((rows.sum(dim=1) - 1).abs() < ROUNDING).all():
            warnings.warn(
                f"{self.name}: its outputs look like probabilities (each row lies in 0..1 and sums to 1), "
                "but logits are expected: remove the softmax at its end, or return the logarithm",
                MemoWarning,
                stacklevel=2,
            )

    def _check_labels(self, classes: int) -> None:
        if self.labels is not None and len(self.labels) != classes:
            raise ModelError(f"{self.name}: expected {classes} labels, one per class, got {len(self.labels)}")


def _size(module: nn.Module) -> str:
    """Describe the number of parameters of a module; empty if it has none."""
    count = sum(parameter.numel() for parameter in module.parameters())
    if count == 0:  # a function
        return ""
    return f"{count / 1e6:.2f} M parameters" if count >= 10_000 else f"{count:,} parameters"


def _supports_channels_last(module: nn.Module) -> bool:
    """Return False where torch's backward pass would crash: group norm whose input needs no gradient."""
    if not torch.is_grad_enabled() or not any(isinstance(layer, nn.GroupNorm) for layer in module.modules()):
        return True
    layers = (layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None)
    is_first = isinstance(next(layers), nn.GroupNorm)
    return not is_first and all(p.requires_grad for p in module.parameters())


def _logits(output: Any) -> Tensor:
    """Return the logits of an output: a tensor, a dict with "logits" or an object with .logits."""
    if isinstance(output, Mapping):
        output = output.get("logits", output)
    output = getattr(output, "logits", output)
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise ModelError(f"module: expected float logits, or an output with .logits, got {kind}")
    return output
