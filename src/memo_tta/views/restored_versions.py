"""Views of a large image: the image itself, its restoration, and the mean of both, some of them mirrored.

Networks for large images have not seen padded borders, and a crop may lose the object, so versions are only
mirrored. Restoring removes texture together with noise; the mean of image and restoration keeps half of it.
"""

import numpy as np
import torch
from torch import Tensor

from memo_tta.image import Size
from memo_tta.views.crop_flip import check_request, check_size
from memo_tta.views.restoration import restore
from memo_tta.views.restored_views import to_float

VERSIONS = ("plain", "restored, mirrored", "half-restored", "half-restored, mirrored")


class RestoredVersions:
    """The versions of an image, in the order of VERSIONS, each its own group."""

    max_views = len(VERSIONS)
    running_views = 2  # the half-restored ones are for mixed batch-norm statistics
    starts_with_image = True

    def __init__(self, size: Size):
        self._size = size

    def groups(self, n: int) -> dict[str, int]:
        """Return the number of views of each of the first n versions: one."""
        return dict.fromkeys(VERSIONS[:n], 1)

    def __call__(self, image: np.ndarray, n: int, _rng: np.random.Generator) -> Tensor:
        """Return the first n versions of a uint8 image: float32 (n, channels, height, width)."""
        check_request(image, n)
        check_size(image, self._size)
        plain = to_float(image)
        restored = restore(plain) if n > 1 else plain
        half = (plain + restored) / 2
        return torch.stack([plain, restored.flip(2), half, half.flip(2)][:n])

    def preview(self, image: np.ndarray, _n: int, _rng: np.random.Generator) -> Tensor:
        """Return the mirror image, without restoration, which is expensive."""
        check_size(image, self._size)
        return to_float(image).flip(2)[None]
