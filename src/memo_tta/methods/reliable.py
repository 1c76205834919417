"""What successors of Tent share: they learn from reliable points only, with a weight for each."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from memo_tta.methods.gradient import ForwardPass
from memo_tta.methods.method import Batch
from memo_tta.methods.options import Number, option
from memo_tta.methods.tent import BatchSteps, Step, TentOptions
from memo_tta.methods.update import UpdateRule
from memo_tta.objectives import entropy, log_probabilities


@dataclass(frozen=True, kw_only=True)
class ReliableOptions(TentOptions):
    """Tent's options, and which points it learns from."""

    entropy_limit: float = option(
        0.4, Number("(0, 1]"), "learn from images whose entropy is below this share of log K only"
    )


AnyReliableOptions = TypeVar("AnyReliableOptions", bound=ReliableOptions)


class ReliableSteps(BatchSteps[AnyReliableOptions]):
    """Minimise the weighted entropy of the points of a batch that are reliable; without any, take no step."""

    @abstractmethod
    def weigh(self, batch: Batch, logits: Tensor, notes: Any) -> Tensor:
        """Return a weight for each point, (points,), 0 to leave it out, from logits (points, classes)."""

    def remember(self, logits: Tensor, weights: Tensor, notes: Any) -> Any:
        """Return what to keep for the next step, after one on these points."""
        return notes

    def step(self, batch: Batch, rule: UpdateRule, notes: Any) -> Step | None:
        forward = ForwardPass(self.classifier, batch.x, micro_batch=None)
        logits = forward.logits.detach()
        weights = self.weigh(batch, logits, notes)
        if not weights.any():
            return Step(logits, notes)
        if not forward.descend(weighted_entropy(forward.logits, weights), self._parameters, rule):
            return None
        return Step(logits, self.remember(logits, weights, notes))

    def reliable(self, logits: Tensor) -> Tensor:
        """Return which points, (points,), have an entropy below the limit."""
        return entropy(log_probabilities(logits)) < self.options.entropy_limit * math.log(logits.shape[1])


def weighted_entropy(logits: Tensor, weights: Tensor) -> Tensor:
    """Return the average of weight times entropy, over the points whose weight is not 0."""
    chosen = weights > 0
    return (weights[chosen] * entropy(log_probabilities(logits[chosen]))).mean()
