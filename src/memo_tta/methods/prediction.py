"""The prediction of a method for one point."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import torch
from torch import Tensor

from memo_tta.models.shift import CLEAN_SHIFT
from memo_tta.objectives import entropy, log_probabilities


class Status(StrEnum):
    """How a prediction was made, for programs; `Prediction.reason` explains it in words."""

    SOURCE = "source"  # by the model as it is, because the method is `source`
    ADAPTED = "adapted"  # by the adapted model
    AVERAGED = "averaged"  # over the views, without adaptation
    # The rest are source predictions:
    GATED = "gated"  # a gate found adaptation unnecessary
    NOT_FINITE = "not_finite"  # a loss, gradient or logit was not finite
    NO_LAYER = "no_layer"  # the model has no batch-norm statistics to mix
    DEADLINE = "deadline"  # there was no time to adapt


@dataclass(frozen=True, eq=False)
class Prediction:
    """Logits of one point, how they were made, and the prediction before adaptation as `source`."""

    logits: Tensor  # (K,), on the CPU
    labels: Sequence[str] | None = None  # class names, by index
    status: Status = Status.SOURCE  # how it was made
    reason: str | None = None  # why nothing was adapted
    marginal_entropy: float | None = None  # of the views, before the first step
    before: "Prediction | None" = None  # the prediction before adaptation; None if this is it
    shift: float | None = None  # from the training data; None if the model has no batch norm

    @property
    def adapted(self) -> bool:
        """Whether the adapted model made the prediction."""
        return self.status is Status.ADAPTED

    @property
    def source(self) -> "Prediction":
        """The prediction before adaptation; for a source prediction, itself."""
        return self.before or self

    @property
    def clean_shift(self) -> float | None:
        """The shift of clean photographs, to compare `shift` with; None if the model has no batch norm."""
        return None if self.shift is None else CLEAN_SHIFT

    @cached_property
    def probabilities(self) -> Tensor:
        """Probabilities (K,) in float64, never NaN: a NaN logit counts as the lowest finite one."""
        return self._finite_logits.softmax(dim=0)

    @cached_property
    def index(self) -> int:
        """Index of the largest logit, even where its probability rounds to the same value as another."""
        return int(self._finite_logits.argmax())

    @cached_property
    def _finite_logits(self) -> Tensor:
        limits = torch.finfo(self.logits.dtype)
        logits = self.logits.double()
        return torch.nan_to_num(logits, nan=limits.min, posinf=limits.max, neginf=limits.min)

    @property
    def label(self) -> str:
        """Name of the predicted class, or its index if the classifier has no labels."""
        return self._name(self.index)

    @property
    def score(self) -> float:
        """Probability of the predicted class."""
        return float(self.probabilities[self.index])

    @cached_property
    def entropy(self) -> float:
        """Entropy of the probabilities in nats, from 0 to log K."""
        return float(entropy(log_probabilities(self.probabilities.log())))

    def top(self, k: int = 5) -> list[dict[str, str | float]]:
        """Return the k most likely classes as {"label", "score"}, by descending score."""
        scores, indices = self.probabilities.topk(min(k, len(self.probabilities)))
        return [
            {"label": self._name(int(index)), "score": float(score)}
            for score, index in zip(scores.numpy(), indices.numpy(), strict=True)
        ]

    def _name(self, index: int) -> str:
        return str(index) if self.labels is None else self.labels[index]

    def __repr__(self) -> str:
        change = f", before {self.source.label!r} {self.source.score:.3f}" if self.before else ""
        return f"Prediction({self.label!r}, score {self.score:.3f}, {self.status}{change})"


@dataclass(frozen=True)
class Explanation:
    """A prediction, the views it is based on, and the predictions for them before and after adaptation."""

    prediction: Prediction
    views: Tensor  # normalised inputs of the module, [B, ...]; empty if no views were used
    before: list[Prediction]
    after: list[Prediction]
