"""What a method answers for one point."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import torch
from torch import Tensor

from memo_tta.objectives import entropy, log_probabilities


class Status(StrEnum):
    """How an answer came about, for programs; `reason` says it in words."""

    SOURCE = "source"  # the model as it is, which is what was asked for
    ADAPTED = "adapted"
    AVERAGED = "averaged"  # over the views, nothing adapted
    GATED = "gated"  # the source's answer: a gate saw no need for more
    NOT_FINITE = "not_finite"  # the source's answer: a loss, gradient or logit was not finite
    NO_LAYER = "no_layer"  # the source's answer: there is no batch norm to mix
    DEADLINE = "deadline"  # the source's answer: the time was up


@dataclass(frozen=True, eq=False)
class Prediction:
    """The answer, how it came about, and the model's answer before adaptation as `source`."""

    logits: Tensor  # (K,), on the CPU
    labels: Sequence[str] | None = None
    status: Status = Status.SOURCE
    reason: str | None = None  # why nothing was adapted
    marginal_entropy: float | None = None  # of the views, before the first step
    before: "Prediction | None" = None

    @property
    def adapted(self) -> bool:
        return self.status is Status.ADAPTED

    @property
    def source(self) -> "Prediction":
        """The prediction before adaptation; of a source prediction, itself."""
        return self.before or self

    @cached_property
    def probabilities(self) -> Tensor:
        """(K,) float64; never NaN: a logit that is NaN counts as no evidence for its class."""
        return self._finite_logits.softmax(dim=0)

    @cached_property
    def index(self) -> int:
        """The largest logit, also where probabilities can no longer tell two classes apart."""
        return int(self._finite_logits.argmax())

    @cached_property
    def _finite_logits(self) -> Tensor:
        limits = torch.finfo(self.logits.dtype)
        logits = self.logits.double()
        return torch.nan_to_num(logits, nan=limits.min, posinf=limits.max, neginf=limits.min)

    @property
    def label(self) -> str:
        return self._name(self.index)

    @property
    def score(self) -> float:
        """The probability of the predicted class."""
        return float(self.probabilities[self.index])

    @cached_property
    def entropy(self) -> float:
        """In nats, from 0 to log K."""
        return float(entropy(log_probabilities(self.probabilities.log())))

    def top(self, k: int = 5) -> list[dict[str, str | float]]:
        """The k most likely classes, descending, as {"label", "score"}."""
        scores, indices = self.probabilities.topk(min(k, len(self.probabilities)))
        return [
            {"label": self._name(index), "score": score}
            for score, index in zip(scores.tolist(), indices.tolist(), strict=True)
        ]

    def _name(self, index: int) -> str:
        return str(index) if self.labels is None else self.labels[index]

    def __repr__(self) -> str:
        change = f", before {self.source.label!r} {self.source.score:.3f}" if self.before else ""
        return f"Prediction({self.label!r}, score {self.score:.3f}, {self.status}{change})"


@dataclass(frozen=True)
class Explanation:
    """A prediction, and what the model says of each view before and after adapting to all of them."""

    prediction: Prediction
    views: Tensor  # as the module takes them, [B, ...]
    before: list[Prediction]
    after: list[Prediction]
