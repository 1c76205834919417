"""What adaptation minimises: functions of the logits of one point's views, shape (views, classes).

All are finite, with finite gradients, for one-hot predictions, float32 logits of thousands, and
classes masked with -inf.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.registry import Registry

# Stands for log 0. Far below any real log-probability, and sums over views cannot overflow.
LOG_ZERO = -1e30


def log_probabilities(logits: Tensor) -> Tensor:
    """Finite log-softmax over classes, in float32 or better."""
    return in_full_precision(logits).log_softmax(dim=-1).clamp(min=LOG_ZERO)


def in_full_precision(logits: Tensor) -> Tensor:
    """The same in float32, if they have fewer bits."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def marginal_log_probabilities(logits: Tensor) -> Tensor:
    """Log of the view-averaged prediction (eq. 1), shape (classes,)."""
    return log_probabilities(logits).logsumexp(dim=0) - math.log(len(logits))


def weighted_log_probabilities(
    logits: Tensor, temperature: float, groups: Sequence[int] | None = None
) -> Tensor:
    """Log of an average over groups of views that trusts the sure ones, shape (classes,).

    A group is its views' average prediction; n of them with entropy H weigh n exp(-temperature H).
    `groups` says how many views each has, in order; by default every view is one.
    """
    if temperature == 0:
        return marginal_log_probabilities(logits)
    averages, sizes = group_log_probabilities(logits, groups)
    weights = (sizes.log() - temperature * entropy(averages)).log_softmax(dim=0)
    return (averages + weights[:, None]).logsumexp(dim=0)


def group_log_probabilities(logits: Tensor, groups: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """Log of every group's average prediction, (groups, classes), and how many views it has."""
    parts = log_probabilities(logits).split([1] * len(logits) if groups is None else list(groups))
    averages = torch.stack([part.logsumexp(dim=0) - math.log(len(part)) for part in parts])
    return averages, averages.new_tensor([len(part) for part in parts])


def entropy(log_p: Tensor) -> Tensor:
    """Entropy in nats of each row of log-probabilities."""
    return -(log_p.exp() * log_p).sum(dim=-1)


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the view-averaged prediction (eq. 2)."""
    return entropy(marginal_log_probabilities(logits))


def conditional_entropy(logits: Tensor) -> Tensor:
    """Average entropy of each view's own prediction (eq. 3)."""
    return entropy(log_probabilities(logits)).mean()


def pairwise_cross_entropy(logits: Tensor) -> Tensor:
    """Average cross entropy H(p_i, p_j) over ordered pairs of different views (section 4.2)."""
    views = len(logits)
    if views < 2:
        raise ConfigError(f"pairwise_cross_entropy: expected at least 2 views, got {views}")
    log_p = log_probabilities(logits)
    all_pairs = -(log_p.exp().sum(dim=0) * log_p.sum(dim=0)).sum()
    return (all_pairs - entropy(log_p).sum()) / (views * (views - 1))


def most_confident(logits: Tensor, share: float | None) -> Tensor:
    """This share of the views, those of lowest entropy; all of them if it is None."""
    if share is None:
        return logits
    entropies = entropy(log_probabilities(logits.detach()))
    return logits[entropies.topk(share_of(len(logits), share), largest=False).indices]


def share_of(views: int, share: float | None) -> int:
    """How many views that share is, at least one."""
    return views if share is None else max(1, round(share * views))


OBJECTIVES = Registry(
    "objective",
    {
        "marginal_entropy": marginal_entropy,
        "conditional_entropy": conditional_entropy,
        "pairwise_cross_entropy": pairwise_cross_entropy,
    },
)
