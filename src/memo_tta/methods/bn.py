"""Adapt only the batch-norm statistics, to one point or to several (Schneider et al., 2020)."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from memo_tta.errors import MemoWarning, ModelError
from memo_tta.methods.episode import episode
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Number, option, when, with_default
from memo_tta.methods.prediction import Status
from memo_tta.methods.shared_passes import SharedPassOptions
from memo_tta.models.batch_norm import can_mix_groups, mixed_statistics, statistics_layers
from memo_tta.models.classifier import Classifier
from memo_tta.models.forward_only import ForwardOnly

NO_LAYER = "the model has no layer with running statistics"


@dataclass(frozen=True, kw_only=True)
class BatchNormOptions(SharedPassOptions):
    """How strongly the statistics are mixed, and over how many points."""

    prior_strength: float = option(
        16,
        Number("[0, inf)"),
        "N of batch-norm mixing: weight of the running statistics, as a number of images; no effect on "
        "models without running statistics",
    )
    batch_size: int = option(
        1, Number("[1, inf)", whole=True), "number of images whose statistics are mixed together"
    )
    batch_points: int | None = with_default(
        SharedPassOptions, "batch_points", None, needs=[when("batch_size", 1)]
    )


class BatchNorm(Method[BatchNormOptions]):
    """Predict n points at a time with statistics nu = N/(N+n) nu_train + n/(N+n) nu_test."""

    options_type = BatchNormOptions

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._has_layers = warn_without_layers(classifier)

    @property
    def points(self) -> int:
        return self.options.batch_size

    @property
    def batch_points(self) -> int:
        can_share = self.points == 1 and can_mix_groups(self._statistics_layers, self.options.prior_strength)
        return self.options.points_with(1, self.classifier) if can_share else self.points

    def run(self, batch: Batch) -> list[Outcome]:
        if not self._has_layers:
            return [Outcome(Status.NO_LAYER, reason=NO_LAYER)] * len(batch.points)
        module, prior, count = self.classifier.module, self.options.prior_strength, len(batch.points)
        if self.points == 1 and count > 1:
            mixed = mixed_statistics(module, prior, groups=[1] * count)
        else:
            mixed = mixed_statistics(module, prior, count)
        with episode(module), torch.no_grad(), mixed:
            return [Outcome(Status.ADAPTED, row) for row in self.classifier(batch.x)]


def warn_without_layers(classifier: Classifier) -> bool:
    """Return whether the model has running statistics to mix; warn if it has none that are known."""
    if isinstance(classifier.module, ForwardOnly):
        raise ModelError(
            f"prior_strength: {classifier.name} gives logits alone, and no batch-norm statistics to mix: "
            "use a method that mixes none, such as source, tta or restore"
        )
    if statistics_layers(classifier.module):
        return True
    warnings.warn(f"prior_strength: {NO_LAYER}, so nothing is mixed", MemoWarning, stacklevel=3)
    return False
