"""The image processors of transformers, as the preprocessing of a classifier."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from memo_tta.errors import ConfigError, ModelError
from memo_tta.image import INTERPOLATIONS, Size, fit_image
from memo_tta.models.classifier import Classifier
from memo_tta.models.preprocessing import RGB, Preprocessing
from memo_tta.models.pretrained import import_transformers

# The switches whose steps are ours too, or do nothing to an RGB image.
KNOWN_STEPS = (
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",
    "do_reduce_labels",
)
WHITE = 255
PROBES = ((307, 412), (421, 300))  # height and width of test images: one wide, one high
SQUASHED_FROM = 384  # pixels from which ConvNeXt's processor squashes the image instead of cropping it
INSTEAD = "wrap the model in Classifier without size, and preprocess the images yourself"


@dataclass(frozen=True)
class FlooredCrop(Preprocessing):
    """Crop as transformers does: where a border is odd, the lower and right parts get its extra pixel."""

    def fit(self, image: np.ndarray) -> np.ndarray:
        """Resize and crop a uint8 (height, width, channels) image to `size`."""
        if self.resize is None:
            return super().fit(image)
        whole = self.resize if isinstance(self.resize, tuple) else _with_shorter_side(image, self.resize)
        resized = fit_image(image, whole, whole, self.interpolation)
        _, height, width = self.shape
        top, left = (whole[0] - height) // 2, (whole[1] - width) // 2
        return resized[top : top + height, left : left + width]


def _with_shorter_side(image: np.ndarray, pixels: int) -> tuple[int, int]:
    height, width = image.shape[:2]
    shorter = min(height, width)
    return pixels * height // shorter, pixels * width // shorter


def preprocessing_of(processor: Any, spec: str) -> Preprocessing:
    """Return what an image processor does as a preprocessing; raise ModelError if it does anything else."""
    name = f"{spec}: its processor ({type(processor).__name__})"
    for step, is_on in vars(processor).items():
        if step.startswith("do_") and is_on and step not in KNOWN_STEPS:
            raise ModelError(f"{name} has {step} switched on, expected at most {_listed()}: {INSTEAD}")
    try:
        size, resize = _size_and_resize(processor)
        mean, std = _mean_and_std(processor)
        found = FlooredCrop(size, mean, std, resize, _interpolation(processor))
    except ValueError as error:
        raise ModelError(f"{name} {error}: {INSTEAD}") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise ModelError(f"{name} lacks a size, filter, mean or std ({error}): {INSTEAD}") from None
    except ConfigError as error:
        raise ModelError(f"{name} does what a classifier cannot: {error}: {INSTEAD}") from None
    if not all(_agree(processor, found, probe) for probe in _probes()):
        raise ModelError(f"{name} does more than resize, crop, rescale and normalise: {INSTEAD}")
    return found


def image_processor(folder: str) -> Any:
    """Return the image processor of a folder; the one that uses Pillow, if there are two."""
    auto_class = import_transformers().AutoImageProcessor
    return auto_class.from_pretrained(folder, backend="pil", trust_remote_code=False)


def classifier_of(module: nn.Module, preprocessing: Preprocessing, **given: Any) -> Classifier:
    """Return a classifier with this preprocessing, but for the arguments that are given."""
    own = {field.name: getattr(preprocessing, field.name) for field in fields(preprocessing)}
    classifier = Classifier(module, **{**own, **given})
    changed = {name: value for name, value in given.items() if name in (*own, "channels")}
    classifier.preprocessing = replace(preprocessing, **changed)
    return classifier


def _listed() -> str:
    return ", ".join(KNOWN_STEPS)


def _size_and_resize(processor: Any) -> tuple[Size, Size]:
    """Return the size of the crop and what the image is resized to; raise ValueError about the rest."""
    if not getattr(processor, "do_resize", False):
        raise ValueError("has do_resize switched off, so that its outputs differ in size")
    resized = {side: pixels for side, pixels in dict(processor.size).items() if pixels}
    if hasattr(processor, "crop_pct"):
        return _cropped_by_share(processor.crop_pct, resized)
    match sorted(resized):
        case ["height", "width"]:
            resize: Size = (resized["height"], resized["width"])
        case ["shortest_edge"]:
            resize = resized["shortest_edge"]
        case _:
            raise ValueError(f"has size {resized}, expected height and width, or shortest_edge")
    if getattr(processor, "do_center_crop", False):
        crop = processor.crop_size
        return (crop["height"], crop["width"]), resize
    if isinstance(resize, int):
        raise ValueError("resizes the shortest edge without a crop, so that its outputs differ in size")
    return resize, resize


def _cropped_by_share(share: float, resized: dict[str, int]) -> tuple[Size, Size]:
    """Return size and resize of ConvNeXt's processor: small images are cropped, large ones squashed."""
    if list(resized) != ["shortest_edge"]:
        raise ValueError(f"has crop_pct and size {resized}, expected shortest_edge")
    size = resized["shortest_edge"]
    return (size, size), int(size / share) if size < SQUASHED_FROM else (size, size)


def _mean_and_std(processor: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std for pixels in 0..1, whatever the processor scales them to."""
    white = WHITE * (processor.rescale_factor if processor.do_rescale else 1)
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else (0.0, 1.0)
    return _per_channel(mean, white), _per_channel(std, white)


def _per_channel(values: float | Sequence[float], white: float) -> tuple[float, ...]:
    values = values if isinstance(values, Sequence) else (values,) * RGB
    return tuple(value / white for value in values)


def _interpolation(processor: Any) -> str:
    names = {int(filtering): name for name, filtering in INTERPOLATIONS.items()}
    return names[int(processor.resample)]


def _probes() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, WHITE + 1, (*shape, RGB), dtype=np.uint8) for shape in PROBES]


def _agree(processor: Any, preprocessing: Preprocessing, image: np.ndarray) -> bool:
    """Return whether the processor gives the same pixels, up to one of 255 steps.

    One in a hundred may differ by more: torchvision and Pillow do not round overshoots alike.
    """
    try:
        output = processor(images=[image], return_tensors="np")["pixel_values"][0]
    except MemoryError:
        raise
    except Exception:  # processors of other tasks can raise anything
        return False
    theirs, pixels = torch.tensor(output), torch.tensor(preprocessing.fit(image)).permute(2, 0, 1) / WHITE
    if theirs.shape != pixels.shape:
        return False
    difference = (theirs - preprocessing.normalise(pixels)).abs()
    is_far = difference * torch.tensor(preprocessing.std).view(-1, 1, 1) > 1.01 / WHITE
    return float(is_far.float().mean()) < 0.01
