"""Test-time augmentation: predict the view-averaged distribution, adapt nothing."""

from dataclasses import dataclass
from typing import Any

import torch

from memo_tta.errors import ConfigError
from memo_tta.methods.average import AverageOptions, SurestGroup, build_average
from memo_tta.methods.episode import episode
from memo_tta.methods.gates import GateOptions, first_views_gate, source_gate
from memo_tta.methods.method import Batch, Outcome, Seen
from memo_tta.methods.options import OneOf, option
from memo_tta.methods.prediction import Status
from memo_tta.methods.view_method import ViewMethod
from memo_tta.methods.view_source import ViewOptions, Views
from memo_tta.models.classifier import Classifier
from memo_tta.objectives import entropy


@dataclass(frozen=True, kw_only=True)
class TTAOptions(AverageOptions, GateOptions, ViewOptions):
    predict: str = option(
        "marginal",
        OneOf("predict", ("marginal", "group")),
        "who answers: the average over the views, or the surest group of them",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.predict == "group" and self.weighting != "uniform":
            raise ConfigError(
                f"weighting: {self.weighting!r} has no effect with predict='group': leave one of them out"
            )


class TTA(ViewMethod[TTAOptions]):
    """Averages probabilities (eq. 1), not logits; its logits are the logarithm of that average."""

    options_type = TTAOptions
    from_settings = frozenset({"n_views"})

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        average = build_average(self.options, self._augmenter.groups)
        self._average = average if self.options.predict == "marginal" else SurestGroup(self._augmenter.groups)

    def run_point(self, batch: Batch, views: Views) -> Outcome:
        source = self.source_logits(batch)[0] if self.options.look_at_source else None
        if reason := source_gate(self.options, source):
            return Outcome(Status.GATED, reason=reason)
        with episode(self.classifier.module), self.computing(), torch.no_grad():
            if reason := first_views_gate(self.options, source, lambda n: self.view_logits(views.first(n))):
                return Outcome(Status.GATED, reason=reason)
            drawn = views.draw()
            logits = self.view_logits(drawn)
        answer = self._average(logits)
        seen = Seen(drawn, logits, logits) if batch.explain else None
        return Outcome(
            Status.AVERAGED, answer, "averaged over the views, nothing adapted", float(entropy(answer)), seen
        )
