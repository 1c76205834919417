"""How views are combined into a prediction: from logits (views, classes) to log-probabilities (classes,)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memo_tta.methods.options import Number, OneOf, Options, option, when
from memo_tta.models.shift import cleanness
from memo_tta.objectives import (
    entropy,
    group_log_probabilities,
    log_probabilities,
    marginal_log_probabilities,
    selected_views,
    weighted_average,
    weighted_log_probabilities,
)

CLEAN_SOURCE = 3  # the unmodified image's weight is multiplied by 1 plus this if it is not shifted at all
MIN_SHIFT = 1e-6  # so that weights are finite

Average = Callable[[Tensor], Tensor]
Groups = Callable[[int], Sequence[int] | None]  # from the number of views to group sizes; None: groups of one


@dataclass(frozen=True, kw_only=True)
class AverageOptions(Options):
    """How views are weighted in their average."""

    weighting: str = option(
        "uniform",
        OneOf("weighting", ("uniform", "confidence")),
        "weights of the views in their average; with confidence, a group of n views whose average has "
        "entropy H gets the weight n exp(-temperature H)",
        off="uniform",
    )
    temperature: float = option(
        2.0,
        Number("[0, inf)"),
        "strength of the confidence weighting; 0 is uniform",
        needs=[when("weighting", "confidence")],
    )


class ByConfidence:
    """Average the groups, weighted by the confidence of each group's average."""

    def __init__(self, temperature: float, groups: Groups):
        self._temperature, self._groups = temperature, groups

    def __call__(self, logits: Tensor) -> Tensor:
        return weighted_log_probabilities(logits, self._temperature, self._groups(len(logits)))


def by_shift(logits: Tensor, shift: Tensor, with_image: bool) -> Tensor:
    """Average views with weights 1 / shift, (views,): a view closer to the training data counts more.

    `with_image` says that the first view is the unmodified image, whose weight grows as its shift falls.
    """
    log_weights = -shift.clamp(min=MIN_SHIFT).log()
    if with_image:
        log_weights[0] += math.log1p(CLEAN_SOURCE * cleanness(float(shift[0])))
    return weighted_average(log_probabilities(logits), log_weights)


class SurestGroup:
    """Take the average of the group with the lowest entropy alone."""

    def __init__(self, groups: Groups):
        self._groups = groups

    def __call__(self, logits: Tensor) -> Tensor:
        averages, _ = group_log_probabilities(logits, self._groups(len(logits)))
        return averages[entropy(averages).argmin()]


class Vote:
    """Let this share of the views, the surest, each vote for a class (ZERO, Farina et al., 2024).

    That is their average at temperature zero. A tie is decided by one more vote: that of the next surest view
    that is for one of the tied classes.
    """

    def __init__(self, share: float):
        self._share = share

    def __call__(self, logits: Tensor) -> Tensor:
        log_p = log_probabilities(logits)
        if log_p.isnan().any():
            return log_p.sum(dim=0)  # a class that is not a number gets no vote
        chosen = log_p[entropy(log_p).argsort(stable=True)].argmax(dim=1)  # by each view, the surest first
        voters = selected_views(len(chosen), self._share)
        votes = chosen[:voters].bincount(minlength=logits.shape[1])
        tied = votes == votes.max()
        if tied.sum() > 1:
            others = torch.cat([chosen[voters:], chosen[:voters]])
            votes[others[tied[others]][0]] += 1
        return log_probabilities(votes.to(log_p).log())


def build_average(options: AverageOptions, groups: Groups) -> Average:
    """Return the mean of probabilities (eq. 1), or the confidence-weighted one if the options ask for it.

    The mean is also what `weighting="shift"` falls back to where no shift can be measured.
    """
    if options.weighting == "confidence":
        return ByConfidence(options.temperature, groups)
    return marginal_log_probabilities
