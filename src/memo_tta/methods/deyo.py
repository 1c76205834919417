"""DeYO (Lee et al., 2024): learn from points whose prediction drops when their shape is destroyed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from memo_tta.errors import ConfigError
from memo_tta.methods.method import Batch
from memo_tta.methods.options import Number, option, with_default
from memo_tta.methods.reliable import ReliableOptions, ReliableSteps
from memo_tta.models.classifier import Classifier
from memo_tta.objectives import entropy, log_probabilities

REFERENCE = 0.4  # share of log K: the entropy above which a point's weight is less than 1 for its entropy


@dataclass(frozen=True, kw_only=True)
class DeYOOptions(ReliableOptions):
    """Tent's options, and which points depend on shape."""

    entropy_limit: float = with_default(ReliableOptions, "entropy_limit", 0.5)
    drop_limit: float = option(
        0.2,
        Number("[-1, 1)"),
        "learn from images only whose predicted class loses more probability than this when their patches "
        "are shuffled",
    )
    patches: int = option(4, Number("[2, inf)", whole=True), "number of patches along each side of an image")


class DeYO(ReliableSteps[DeYOOptions]):
    """Minimise the entropy of points that are sure of a shape, weighted by entropy and drop."""

    options_type = DeYOOptions

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        if classifier.size is None:
            raise ConfigError(
                "deyo: shuffles the patches of images, and this classifier takes tensors: "
                "give Classifier a size, or use another method, such as eta"
            )

    @torch.no_grad()
    def weigh(self, batch: Batch, logits: Tensor, notes: None) -> Tensor:
        reliable = self.reliable(logits)
        weights = torch.zeros_like(log_probabilities(logits)[:, 0])
        if not reliable.any():
            return weights
        log_p, index = log_probabilities(logits[reliable]), logits[reliable].argmax(dim=1, keepdim=True)
        rngs = [rng for rng, is_chosen in zip(batch.rngs, reliable, strict=True) if is_chosen]
        shuffled = shuffle_patches(batch.x[reliable.to(batch.x.device)], self.options.patches, rngs)
        after = log_probabilities(self.classifier(shuffled))
        drop = (log_p.exp() - after.exp()).gather(1, index)[:, 0]
        weight = (REFERENCE * math.log(logits.shape[1]) - entropy(log_p)).exp() + drop.exp()
        weights[reliable] = weight.where(drop > self.options.drop_limit, 0)
        return weights


def shuffle_patches(images: Tensor, count: int, rngs: Sequence[np.random.Generator]) -> Tensor:
    """Cut each image (n, channels, height, width) into count x count patches, and permute them at random.

    An image whose sides are no multiples of `count` is resized for it, and back.
    """
    height, width = (max(side // count, 1) for side in images.shape[2:])  # of a patch
    fitting = _resized(images, count * height, count * width)
    n, channels = images.shape[:2]
    patches = fitting.reshape(n, channels, count, height, count, width).permute(0, 2, 4, 1, 3, 5)
    orders = np.stack([rng.permutation(count * count) for rng in rngs])
    orders = torch.as_tensor(orders, device=images.device)
    patches = patches.flatten(1, 2)[torch.arange(n, device=images.device)[:, None], orders]
    rows = patches.reshape(n, count, count, channels, height, width).permute(0, 3, 1, 4, 2, 5)
    return _resized(rows.reshape(fitting.shape), *images.shape[2:])


def _resized(images: Tensor, height: int, width: int) -> Tensor:
    if images.shape[2:] == (height, width):
        return images
    return interpolate(images, (height, width), mode="bilinear", antialias=True)
