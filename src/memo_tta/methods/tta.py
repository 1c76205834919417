"""Test-time augmentation: average the predictions over views, without adaptation.

With a prior strength, the views are classified twice, with the running batch-norm statistics and with mixed
ones, and the average is over both: the two err on different images.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memo_tta.methods.average import Average, AverageOptions, SurestGroup, build_average
from memo_tta.methods.episode import episode
from memo_tta.methods.gates import GateOptions, first_views_gate, source_gate
from memo_tta.methods.method import Batch, Outcome, SeenViews
from memo_tta.methods.options import Number, OneOf, option, when, with_default
from memo_tta.methods.prediction import Status
from memo_tta.methods.view_method import NOT_NEEDED, ViewMethod
from memo_tta.methods.view_source import ViewOptions, Views
from memo_tta.models.batch_norm import mixed_statistics, statistics_layers
from memo_tta.models.classifier import Classifier
from memo_tta.objectives import entropy, marginal_log_probabilities


@dataclass(frozen=True, kw_only=True)
class TTAOptions(AverageOptions, GateOptions, ViewOptions):
    """Views, gates, and how views are combined."""

    predict: str = option(
        "marginal",
        OneOf("predict", ("marginal", "group")),
        "what the prediction is made from: the average of all views, or their most confident group",
    )
    weighting: str = with_default(AverageOptions, "weighting", "uniform", needs=[when("predict", "marginal")])
    prior_strength: float | None = option(
        None,
        Number("[0, inf)"),
        "N of batch-norm mixing: average the views as they are and with mixed statistics; no effect on "
        "models without running statistics",
    )


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
        source, shift = self.source_and_shift(batch) if self.options.needs_source else NOT_NEEDED
        if reason := source_gate(self.options, source, shift):
            return Outcome(Status.GATED, reason=reason)
        with episode(self.classifier.module):
            if reason := first_views_gate(self.options, source, lambda n: self.view_logits(views.first(n))):
                return Outcome(Status.GATED, reason=reason)
            drawn = views.draw()
            passes = [self._plain_logits(drawn, batch.x, source), *self._mixed_logits(drawn)]
        average, combined = (_over_passes(combine, passes) for combine in (self._average, self._combine))
        seen = SeenViews(drawn, passes[0], passes[0]) if batch.explain else None
        reason = "averaged over the views, nothing adapted"
        return Outcome(Status.AVERAGED, combined, reason, float(entropy(average)), seen)

    def _plain_logits(self, views: Tensor, x: Tensor, source: Tensor | None) -> Tensor:
        """Return the logits of the views with running statistics; those of the point itself are known."""
        is_known = source is not None and self.options.precision == "float32" and torch.equal(views[:1], x)
        if source is None or not is_known:
            return self.view_logits(views)
        rest = [self.view_logits(views[1:])] if len(views) > 1 else []
        return torch.cat([source[None], *rest])

    def _mixed_logits(self, views: Tensor) -> Iterator[Tensor]:
        """Yield the logits of the views with mixed statistics, if any: of each group with its own."""
        module, prior_strength = self.classifier.module, self.options.prior_strength
        if prior_strength is not None and statistics_layers(module):
            sizes = self._augmenter.groups(len(views)) or [len(views)]
            rows: list[Tensor] = []
            with mixed_statistics(module, prior_strength) as statistics:
                for group in torch.split(views, list(sizes)):
                    self.fix_statistics(statistics, group[:1])
                    rows.append(self.view_logits(group))
            yield torch.cat(rows)


def _over_passes(combine: Average, passes: Sequence[Tensor]) -> Tensor:
    """Combine the views of each pass, and average the passes."""
    rows = [combine(logits) for logits in passes]
    return rows[0] if len(rows) == 1 else marginal_log_probabilities(torch.stack(rows))
