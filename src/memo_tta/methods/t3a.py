"""T3A (Iwasawa and Matsuo, 2021): class prototypes from the last layer's weights and confident features."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from memo_tta.methods.feature_method import FeatureMethod, OnlineFeatureOptions
from memo_tta.methods.options import Number, option
from memo_tta.models.last_layer import LastLayer
from memo_tta.objectives import entropy, log_probabilities


@dataclass(frozen=True, kw_only=True)
class T3AOptions(OnlineFeatureOptions):
    """How many features make a prototype, over how many points."""

    supports: int = option(
        20,
        Number("[1, inf)", whole=True),
        "most features that make up the prototype of a class, those of lowest entropy; the paper chooses "
        "from 1, 5, 20, 50, 100 and all on validation data",
    )


@dataclass(frozen=True)
class Supports:
    """Features (n, width) of length 1, the class of each (n,), and the entropy of its prediction (n,)."""

    features: Tensor
    classes: Tensor
    entropies: Tensor

    def with_others(self, others: "Supports", most: int) -> "Supports":
        """Return these and the others, but of each class at most `most`, those of lowest entropy."""
        rows = zip(vars(self).values(), vars(others).values(), strict=True)
        joined = Supports(*(torch.cat(pair) for pair in rows))
        order = joined.entropies.argsort(stable=True)
        order = order[joined.classes[order].argsort(stable=True)]  # by class, and by entropy within one
        classes = joined.classes[order]
        counts = classes.bincount()
        rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[classes]
        kept = order[rank < most].sort().values
        return Supports(joined.features[kept], joined.classes[kept], joined.entropies[kept])

    def prototypes(self, count: int) -> Tensor:
        """Return the direction (count, width) of each class: the normalised sum of its features."""
        sums = self.features.new_zeros(count, self.features.shape[1])
        return normalize(sums.index_add_(0, self.classes, self.features))


class T3A(FeatureMethod[T3AOptions]):
    """Classify features by prototypes that confident points of the stream move; no pass beyond the source's.

    A class starts with its row of the last layer's weights. As in the published code, prototypes have length
    1, and a point counts for its own prediction.
    """

    options_type = T3AOptions

    def answer(self, last: LastLayer, logits: Tensor, state: Supports | None) -> tuple[Tensor, Supports]:
        classes = torch.arange(len(last.weight), device=last.weight.device)
        start = state or _supports(last.weight, classes, last.logits(last.weight))
        new = _supports(last.features, logits.argmax(dim=1), logits)
        supports = start.with_others(new, self.options.supports)
        return last.features @ supports.prototypes(len(classes)).T, supports


def _supports(features: Tensor, classes: Tensor, logits: Tensor) -> Supports:
    return Supports(normalize(features), classes, entropy(log_probabilities(logits)))
