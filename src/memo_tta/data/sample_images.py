"""The 500 bundled CIFAR-10 test images, and four simple shifts that need no extra package."""

import io
import json
from dataclasses import replace
from importlib.resources import files

import numpy as np
from PIL import Image, ImageFilter

from memo_tta.class_lists import class_list
from memo_tta.data.dataset import Dataset
from memo_tta.registry import Registry
from memo_tta.seeding import sample_rng

COLUMNS, SIDE = 25, 32  # tiles per row of the bundled picture, pixels per side of a tile


def load_sample() -> Dataset:
    """Load the data set `sample`: 50 test images of each class, in the order of the test set."""
    folder = files("memo_tta").joinpath("data/sample")
    sheet = np.asarray(Image.open(io.BytesIO(folder.joinpath("images.png").read_bytes())))
    tiles = sheet.reshape(-1, SIDE, COLUMNS, SIDE, 3).swapaxes(1, 2)
    targets = json.loads(folder.joinpath("labels.json").read_text("utf-8"))["label"]
    return Dataset("sample", tiles.reshape(-1, SIDE, SIDE, 3), np.array(targets), class_list("cifar10"))


def _clean(image: np.ndarray, _rng: np.random.Generator) -> np.ndarray:
    return image


def _noise(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add Gaussian noise of standard deviation 0.10, as severity 5 of CIFAR-10-C."""
    noisy = image / 255 + rng.normal(0, 0.10, image.shape)
    return (noisy.clip(0, 1) * 255).astype(np.uint8)


def _blur(image: np.ndarray, _rng: np.random.Generator) -> np.ndarray:
    return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(1.0)))


def _low_contrast(image: np.ndarray, _rng: np.random.Generator) -> np.ndarray:
    mean = image.mean(axis=(0, 1), keepdims=True)
    return ((image - mean) * 0.25 + mean).round().astype(np.uint8)


SHIFTS = Registry("shift", {"clean": _clean, "noise": _noise, "blur": _blur, "low contrast": _low_contrast})


def shifted(dataset: Dataset, shift: str) -> Dataset:
    """Return the data set under a shift; the noise of an image depends on its id alone."""
    apply = SHIFTS[shift]
    images = [apply(sample.image, sample_rng(0, f"{shift} {sample.id}")) for sample in dataset]
    return replace(dataset, name=shift, images=np.stack(images))
