"""LAME (Boudiaf et al., 2022): points of a batch with similar features get similar predictions."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from memo_tta.methods.feature_method import FeatureMethod, FeatureOptions
from memo_tta.methods.options import Number, OneOf, option, when, with_default
from memo_tta.models.last_layer import LastLayer
from memo_tta.objectives import log_probabilities
from memo_tta.registry import Registry

MOST_STEPS, TOLERANCE = (
    100,
    1e-8,
)  # of the published code: iterations, and the change of the bound that ends them
LEAST = 1e-10  # probability
CLOSEST = 1e-6  # distance, so that a batch of one image repeated has affinities


def nearest(features: Tensor, neighbours: int) -> Tensor:
    """Return affinities of 1 to each point's nearest other points, and 0 to the rest."""
    distances = torch.cdist(features, features).fill_diagonal_(torch.inf)
    found = distances.topk(min(neighbours, len(features) - 1), largest=False).indices
    return torch.zeros_like(distances).scatter_(1, found, 1.0)


def radial(features: Tensor, neighbours: int) -> Tensor:
    """Return exp(-d² / 2σ²), with σ the mean distance to this nearest point, the point itself included."""
    distances = torch.cdist(features, features)
    radius = distances.topk(min(neighbours, len(features)), largest=False).values[:, -1].mean()
    return (-(distances**2) / (2 * radius.clamp(min=CLOSEST) ** 2)).exp()


def cosine(features: Tensor, _neighbours: int) -> Tensor:
    """Return the inner products of features of length 1."""
    return features @ features.T


AFFINITIES: Registry[Callable[[Tensor, int], Tensor]] = Registry(
    "affinity", {"knn": nearest, "rbf": radial, "linear": cosine}
)


@dataclass(frozen=True, kw_only=True)
class LAMEOptions(FeatureOptions):
    """Which points of a batch are similar."""

    batch_size: int = with_default(FeatureOptions, "batch_size", 64)
    affinity: str = option(
        "knn", OneOf("affinity", AFFINITIES), "how similar two images are, by their features"
    )
    neighbours: int = option(
        5,
        Number("[1, inf)", whole=True),
        "number of nearest images that knn makes alike, or the rank of the one that gives rbf its radius",
        needs=[(when("affinity", "knn"), when("affinity", "rbf"))],
    )


class LAME(FeatureMethod[LAMEOptions]):
    """Move predictions of a batch towards those of similar points; no weight changes, nothing is kept."""

    options_type = LAMEOptions

    def answer(self, last: LastLayer, logits: Tensor, state: None) -> tuple[Tensor, None]:
        affinity = AFFINITIES[self.options.affinity](normalize(last.features), self.options.neighbours)
        return smoothed(log_probabilities(logits), affinity), None


def smoothed(log_p: Tensor, affinity: Tensor) -> Tensor:
    """Return log-probabilities (points, classes) that minimise LAME's bound, by its fixed-point iteration.

    The bound is sum_i KL(z_i || p_i) - sum_ij affinity_ij z_i . z_j.
    """
    log_p = (log_p.exp() + LEAST).log()
    log_z, bound = log_p.log_softmax(dim=1), torch.inf
    for step in range(MOST_STEPS):
        pull = affinity @ log_z.exp()
        log_z = (log_p + pull).log_softmax(dim=1)
        before, bound = bound, float((log_z.exp() * (log_z - log_p - pull)).sum())
        if step > 1 and abs(bound - before) <= TOLERANCE * abs(before):
            break
    return log_z
