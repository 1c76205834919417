"""Adapt the batch-norm statistics alone (Schneider et al., 2020), to one point or to many."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from memo_tta.errors import MemoWarning
from memo_tta.methods.episode import episode
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Number, Options, option
from memo_tta.methods.prediction import Status
from memo_tta.models.batch_norm import mixed_statistics, statistics_layers
from memo_tta.models.classifier import Classifier

NO_LAYER = "the model has no layer with running statistics"


@dataclass(frozen=True, kw_only=True)
class BatchNormOptions(Options):
    prior_strength: float = option(
        16,
        Number("[0, inf)"),
        "N of batch-norm mixing: how many points the running statistics count for; without effect on models "
        "that keep none",
    )
    batch_size: int = option(1, Number("[1, inf)", whole=True), "how many points are taken at once")


class BatchNorm(Method[BatchNormOptions]):
    """Statistics nu = N/(N+n) nu_train + n/(N+n) nu_test of n points at a time."""

    options_type = BatchNormOptions

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._applies = warn_without_layers(classifier)

    @property
    def points(self) -> int:
        return self.options.batch_size

    def run(self, batch: Batch) -> list[Outcome]:
        if not self._applies:
            return [Outcome(Status.NO_LAYER, reason=NO_LAYER)] * len(batch.points)
        module, prior = self.classifier.module, self.options.prior_strength
        with episode(module), torch.no_grad(), mixed_statistics(module, prior, len(batch.points)):
            return [Outcome(Status.ADAPTED, row) for row in self.classifier(batch.x)]


def warn_without_layers(classifier: Classifier) -> bool:
    """Whether there is anything to mix; if not, the user who asked for it is told."""
    if statistics_layers(classifier.module):
        return True
    warnings.warn(f"prior_strength: {NO_LAYER}, so nothing is mixed", MemoWarning, stacklevel=3)
    return False
