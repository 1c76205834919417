"""How views answer together: from logits (views, classes) to log-probabilities (classes,)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from memo_tta.methods.options import Number, OneOf, Options, option, when
from memo_tta.objectives import (
    entropy,
    group_log_probabilities,
    marginal_log_probabilities,
    weighted_log_probabilities,
)

Average = Callable[[Tensor], Tensor]
Groups = Callable[[int], Sequence[int] | None]  # how many of n views each group has; None: one each


@dataclass(frozen=True, kw_only=True)
class AverageOptions(Options):
    weighting: str = option(
        "uniform",
        OneOf("weighting", ("uniform", "confidence")),
        "how views count in their average; confidence: a group of n views whose average has entropy H "
        "weighs n exp(-temperature H)",
        off="uniform",
    )
    temperature: float = option(
        2.0,
        Number("[0, inf)"),
        "how much confidence counts; 0 is uniform",
        needs=[when("weighting", "confidence")],
    )


class ByConfidence:
    """Trust the groups whose own average is sure."""

    def __init__(self, temperature: float, groups: Groups):
        self._temperature, self._groups = temperature, groups

    def __call__(self, logits: Tensor) -> Tensor:
        return weighted_log_probabilities(logits, self._temperature, self._groups(len(logits)))


class SurestGroup:
    """Let the group of lowest entropy answer alone."""

    def __init__(self, groups: Groups):
        self._groups = groups

    def __call__(self, logits: Tensor) -> Tensor:
        averages, _ = group_log_probabilities(logits, self._groups(len(logits)))
        return averages[entropy(averages).argmin()]


def build_average(options: AverageOptions, groups: Groups) -> Average:
    """The plain mean of probabilities (eq. 1), unless confidence weighs."""
    if options.weighting == "uniform":
        return marginal_log_probabilities
    return ByConfidence(options.temperature, groups)
