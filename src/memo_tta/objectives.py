"""What adaptation minimises: functions of the logits of one point's views, shape (views, classes).

All are finite, with finite gradients, for one-hot predictions, float32 logits of thousands, and
classes masked with -inf.
"""

import math

import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.registry import Registry

# Stands for log 0. Far below any real log-probability, and sums over views cannot overflow.
LOG_ZERO = -1e30


def log_probabilities(logits: Tensor) -> Tensor:
    """Finite log-softmax over classes, in float32 or better."""
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return logits.log_softmax(dim=-1).clamp(min=LOG_ZERO)


def marginal_log_probabilities(logits: Tensor) -> Tensor:
    """Log of the view-averaged prediction (eq. 1), shape (classes,)."""
    return log_probabilities(logits).logsumexp(dim=0) - math.log(len(logits))


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


OBJECTIVES = Registry(
    "objective",
    {
        "marginal_entropy": marginal_entropy,
        "conditional_entropy": conditional_entropy,
        "pairwise_cross_entropy": pairwise_cross_entropy,
    },
)
