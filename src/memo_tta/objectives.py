"""Objectives that adaptation minimises: functions of the logits of one point's views, (views, classes).

Values and gradients are finite even for one-hot predictions, float32 logits in the thousands, and classes
masked with -inf.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.registry import Registry

# Replaces log 0: far below any real log-probability, yet sums over views cannot overflow.
LOG_ZERO = -1e30


def log_probabilities(logits: Tensor) -> Tensor:
    """Return the log-softmax over classes, finite and in float32 or better."""
    return at_least_float32(logits).log_softmax(dim=-1).clamp(min=LOG_ZERO)


def at_least_float32(logits: Tensor) -> Tensor:
    """Return logits of half precision as float32, others unchanged."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def marginal_log_probabilities(logits: Tensor) -> Tensor:
    """Return the log of the view-averaged prediction (eq. 1), shape (classes,)."""
    return log_probabilities(logits).logsumexp(dim=0) - math.log(len(logits))


def weighted_log_probabilities(
    logits: Tensor, temperature: float, groups: Sequence[int] | None = None
) -> Tensor:
    """Return the log of a confidence-weighted average over groups of views, shape (classes,).

    A group of n views whose average prediction has entropy H gets the weight n exp(-temperature H).
    `groups` holds the number of views of each group, in order; by default every view is its own group.
    """
    if temperature == 0:
        return marginal_log_probabilities(logits)
    averages, sizes = group_log_probabilities(logits, groups)
    return weighted_average(averages, sizes.log() - temperature * entropy(averages))


def weighted_average(log_p: Tensor, log_weights: Tensor) -> Tensor:
    """Return the log of the average of probabilities (n, classes) by weights (n,), shape (classes,)."""
    return (log_p + log_weights.log_softmax(dim=0)[:, None]).logsumexp(dim=0)


def group_log_probabilities(logits: Tensor, groups: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """Return the log of each group's average prediction, (groups, classes), and the group sizes (groups,)."""
    parts = log_probabilities(logits).split([1] * len(logits) if groups is None else list(groups))
    averages = torch.stack([part.logsumexp(dim=0) - math.log(len(part)) for part in parts])
    return averages, averages.new_tensor([len(part) for part in parts])


def entropy(log_p: Tensor) -> Tensor:
    """Return the entropy in nats of each row of log-probabilities."""
    return -(log_p.exp() * log_p).sum(dim=-1)


def marginal_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the view-averaged prediction (eq. 2)."""
    return entropy(marginal_log_probabilities(logits))


def conditional_entropy(logits: Tensor) -> Tensor:
    """Return the average entropy of the predictions of single views (eq. 3)."""
    return entropy(log_probabilities(logits)).mean()


def pairwise_cross_entropy(logits: Tensor) -> Tensor:
    """Return the average cross entropy H(p_i, p_j) over ordered pairs of different views (section 4.2)."""
    views = len(logits)
    if views < 2:
        raise ConfigError(f"pairwise_cross_entropy: expected at least 2 views, got {views}")
    log_p = log_probabilities(logits)
    all_pairs = -(log_p.exp().sum(dim=0) * log_p.sum(dim=0)).sum()
    return (all_pairs - entropy(log_p).sum()) / (views * (views - 1))


def most_confident(logits: Tensor, share: float | None) -> Tensor:
    """Return the logits of this share of the views, those of lowest entropy; None keeps all views."""
    if share is None:
        return logits
    entropies = entropy(log_probabilities(logits.detach()))
    return logits[entropies.topk(selected_views(len(logits), share), largest=False).indices]


def selected_views(views: int, share: float | None) -> int:
    """Return how many views that share is: at least one, and all if it is None."""
    return views if share is None else max(1, round(share * views))


OBJECTIVES = Registry(
    "objective",
    {
        "marginal_entropy": marginal_entropy,
        "conditional_entropy": conditional_entropy,
        "pairwise_cross_entropy": pairwise_cross_entropy,
    },
)
