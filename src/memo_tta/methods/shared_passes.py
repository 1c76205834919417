"""Points that share forward passes: how many, for methods whose predictions do not depend on each other."""

from dataclasses import dataclass

import torch

from memo_tta.methods.options import Number, Options, option
from memo_tta.models.classifier import Classifier

MAX_POINTS = 16  # more gain little time, and take more memory
MAX_VIEWS = 64  # as many as a single image has with the default options
EXACT = (torch.float32, torch.float64)  # in other types, what shares a pass changes more than the last digits


@dataclass(frozen=True, kw_only=True)
class SharedPassOptions(Options):
    """How many points share forward passes."""

    batch_points: int | None = option(
        None,
        Number("[1, inf)", whole=True),
        "number of images that share forward passes, if several are given; predictions are those of one "
        f"image at a time, to rounding; by default up to {MAX_POINTS}, with {MAX_VIEWS} views at most",
    )

    def points_with(self, views: int, classifier: Classifier) -> int:
        """Return how many points share passes if each has this many views."""
        if self.batch_points is not None:
            return self.batch_points
        return max(1, min(MAX_POINTS, MAX_VIEWS // views)) if classifier.dtype in EXACT else 1
