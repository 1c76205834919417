"""ETA: EATA (Niu et al., 2022) without its Fisher regulariser, which needs images of the source."""

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cosine_similarity

from memo_tta.methods.method import Batch
from memo_tta.methods.options import Number, option
from memo_tta.methods.reliable import ReliableOptions, ReliableSteps
from memo_tta.objectives import entropy, log_probabilities

MOMENTUM = 0.9  # of the moving average of outputs


@dataclass(frozen=True, kw_only=True)
class ETAOptions(ReliableOptions):
    """Tent's options, and which points are reliable and not redundant."""

    redundancy: float = option(
        0.4,
        Number("(0, 1]"),
        "learn from images only whose output has a cosine below this to the moving average of outputs; the "
        "paper takes 0.4 for CIFAR-10 and 0.05 for ImageNet",
    )


class ETA(ReliableSteps[ETAOptions]):
    """Minimise the entropy of points that are reliable and not redundant, each weighted by exp(E0 - E)."""

    options_type = ETAOptions

    def weigh(self, batch: Batch, logits: Tensor, notes: Tensor | None) -> Tensor:
        log_p = log_probabilities(logits)
        chosen = self.reliable(logits)
        if notes is not None:
            chosen &= cosine_similarity(log_p.exp(), notes[None]).abs() < self.options.redundancy
        limit = self.options.entropy_limit * math.log(logits.shape[1])
        return (limit - entropy(log_p)).exp().where(chosen, 0)

    def remember(self, logits: Tensor, weights: Tensor, notes: Tensor | None) -> Tensor:
        mean = log_probabilities(logits[weights > 0]).exp().mean(dim=0)
        return mean if notes is None else notes.lerp(mean, 1 - MOMENTUM)
