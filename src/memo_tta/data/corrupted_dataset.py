"""Corruption on the fly: nobody must write 75 copies of a data set to disk."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memo_tta.data.corruptions import corrupt
from memo_tta.data.corruptions.severity import is_small
from memo_tta.data.dataset import Dataset, Images
from memo_tta.errors import InputError
from memo_tta.image import fit_square
from memo_tta.seeding import SampleId, sample_rng

RESIZE, CROP = 256, 224  # as ImageNet-C was made


def corrupted(dataset: Dataset, corruption: str, severity: int, seed: int = 0) -> Dataset:
    """The same points, corrupted when they are read; each depends on the seed and its id alone."""
    ids = dataset.ids if dataset.ids is not None else range(len(dataset))
    images = CorruptedImages(dataset.images, ids, corruption, severity, seed)
    return replace(dataset, images=images, corruption=corruption, severity=severity, cropped=True)


@dataclass(frozen=True)
class CorruptedImages:
    images: Images
    ids: Sequence[SampleId]
    corruption: str
    severity: int
    seed: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> np.ndarray:
        rng = sample_rng(self.seed, f"{self.corruption} {self.severity} {self.ids[position]}")
        image = as_published(self.images[position])
        try:
            return corrupt(image, self.corruption, self.severity, rng)
        except InputError as error:
            raise InputError(f"{self.ids[position]}: {str(error).removeprefix('image: ')}") from None


def as_published(image: np.ndarray) -> np.ndarray:
    """Small images as they are, others resized and cropped to 224 x 224, as ImageNet-C's were."""
    image = np.asarray(image)
    return image if is_small(image) else fit_square(image, RESIZE, CROP)
