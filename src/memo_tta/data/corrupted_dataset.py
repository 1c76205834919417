"""A data set whose images are corrupted when they are read, so that no copies need to be stored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memo_tta.data.corruptions import corrupt
from memo_tta.data.corruptions.severity import is_small
from memo_tta.data.dataset import Dataset, Images
from memo_tta.errors import InputError
from memo_tta.image import fit_image
from memo_tta.seeding import SampleId, sample_rng

RESIZE, CROP = 256, 224  # pixels, as in ImageNet-C


def corrupted(dataset: Dataset, corruption: str, severity: int, seed: int = 0) -> Dataset:
    """Return the data set with every image corrupted; the noise depends on seed and sample id alone."""
    ids = dataset.ids if dataset.ids is not None else range(len(dataset))
    images = CorruptedImages(dataset.images, ids, corruption, severity, seed)
    return replace(dataset, images=images, corruption=corruption, severity=severity, cropped=True)


@dataclass(frozen=True)
class CorruptedImages:
    """Images that are corrupted on access."""

    images: Images
    ids: Sequence[SampleId]
    corruption: str
    severity: int
    seed: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> np.ndarray:
        rng = sample_rng(self.seed, f"{self.corruption} {self.severity} {self.ids[position]}")
        image = crop_like_imagenet_c(self.images[position])
        try:
            return corrupt(image, self.corruption, self.severity, rng)
        except InputError as error:
            raise InputError(f"{self.ids[position]}: {str(error).removeprefix('image: ')}") from None


def crop_like_imagenet_c(image: np.ndarray) -> np.ndarray:
    """Resize and crop a large image to 224 x 224; return a small one unchanged."""
    image = np.asarray(image)
    return image if is_small(image) else fit_image(image, CROP, RESIZE)
