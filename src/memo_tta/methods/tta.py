"""Test-time augmentation: average the predictions over views, without adaptation."""

from dataclasses import dataclass
from typing import Any

from memo_tta.methods.average import AverageOptions, SurestGroup, build_average
from memo_tta.methods.episode import episode
from memo_tta.methods.gates import GateOptions, first_views_gate, source_gate
from memo_tta.methods.method import Batch, Outcome, SeenViews
from memo_tta.methods.options import OneOf, option, when, with_default
from memo_tta.methods.prediction import Status
from memo_tta.methods.view_method import ViewMethod
from memo_tta.methods.view_source import ViewOptions, Views
from memo_tta.models.classifier import Classifier
from memo_tta.objectives import entropy


@dataclass(frozen=True, kw_only=True)
class TTAOptions(AverageOptions, GateOptions, ViewOptions):
    """Views, gates, and how views are combined."""

    predict: str = option(
        "marginal",
        OneOf("predict", ("marginal", "group")),
        "what the prediction is made from: the average of all views, or their most confident group",
    )
    weighting: str = with_default(AverageOptions, "weighting", "uniform", needs=[when("predict", "marginal")])


class TTA(ViewMethod[TTAOptions]):
    """Average probabilities, not logits (eq. 1); the returned logits are the log of that average."""

    options_type = TTAOptions
    from_settings = frozenset({"n_views"})

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        groups = self._augmenter.groups
        self._average = build_average(self.options, groups)
        self._combine = SurestGroup(groups) if self.options.predict == "group" else self._average

    def run_point(self, batch: Batch, views: Views) -> Outcome:
        source = self.source_logits(batch)[0] if self.options.needs_source else None
        if reason := source_gate(self.options, source):
            return Outcome(Status.GATED, reason=reason)
        with episode(self.classifier.module):
            if reason := first_views_gate(self.options, source, lambda n: self.view_logits(views.first(n))):
                return Outcome(Status.GATED, reason=reason)
            drawn = views.draw()
            logits = self.view_logits(drawn)
        marginal_entropy = float(entropy(self._average(logits)))
        reason = "averaged over the views, nothing adapted"
        seen = SeenViews(drawn, logits, logits) if batch.explain else None
        return Outcome(Status.AVERAGED, self._combine(logits), reason, marginal_entropy, seen)
