"""Test-time augmentation: average the predictions over views, without adaptation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memo_tta.methods.average import AverageOptions, SurestGroup, build_average, by_shift
from memo_tta.methods.episode import episode
from memo_tta.methods.gates import GateOptions, first_views_gate, source_gate
from memo_tta.methods.method import Batch, MeasuredPass, Outcome, SeenViews
from memo_tta.methods.options import Number, OneOf, option, when, with_default
from memo_tta.methods.prediction import Status
from memo_tta.methods.view_method import NOT_NEEDED, ViewMethod
from memo_tta.methods.view_source import ViewOptions, Views
from memo_tta.models.batch_norm import mixed_statistics
from memo_tta.models.classifier import Classifier
from memo_tta.models.shift import SHIFTED, ShiftMeter, cleanness, measuring_shift
from memo_tta.objectives import entropy


@dataclass(frozen=True, kw_only=True)
class TTAOptions(AverageOptions, GateOptions, ViewOptions):
    """Views, gates, and how views are combined."""

    predict: str = option(
        "marginal",
        OneOf("predict", ("marginal", "group")),
        "what the prediction is made from: the average of all views, or their most confident group",
    )
    weighting: str = with_default(
        AverageOptions,
        "weighting",
        "uniform",
        values=OneOf("weighting", ("uniform", "confidence", "shift")),
        meaning="weights of the views in their average; with confidence, a group of n views whose average "
        "has entropy H gets the weight n exp(-temperature H); with shift, a view's weight is the inverse of "
        "its shift, if the model has batch norm",
        needs=[when("predict", "marginal")],
    )
    prior_strength: float | None = option(
        None,
        Number("[0, inf)"),
        "N of batch-norm mixing; with augment=restore on large images, only half-restored views are mixed; "
        "no effect on models without running statistics",
    )
    clean_views: int | None = option(
        None,
        Number("[1, inf)", whole=True),
        f"use only this many views, the first ones, if the image's shift is below {SHIFTED}; no effect on "
        "models without batch norm",
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
        self._is_by_shift = self.options.weighting == "shift"
        self._mixes = self.options.prior_strength is not None and len(self._statistics_layers) > 0

    def run_point(self, batch: Batch, views: Views) -> Outcome:
        source, shift = self.source_and_shift(batch) if self.needs_source else NOT_NEEDED
        if reason := source_gate(self.options, source, shift):
            return Outcome(Status.GATED, reason=reason)
        with episode(self.classifier.module):
            if reason := first_views_gate(self.options, source, lambda n: self.view_logits(views.first(n))):
                return Outcome(Status.GATED, reason=reason)
            drawn = views.draw(self.options.clean_views if cleanness(shift) > 0 else None)
            with_image = views.starts_with_image or torch.equal(drawn[:1], batch.x.to(drawn.device))
            known = self.source_pass(batch) if with_image and self._source_is_known else None
            sizes = views.mixed_groups(len(drawn)) if self._mixes else []
            with measuring_shift(self._statistics_layers if self._is_by_shift else []) as meter:
                passed = MeasuredPass.joined(list(self._passes(drawn, sizes, known, meter)))
        average, combined = self._averages(passed, with_image)
        seen = SeenViews(drawn, passed.logits, passed.logits) if batch.explain else None
        reason = "averaged over the views, nothing adapted"
        return Outcome(Status.AVERAGED, combined, reason, float(entropy(average)), seen)

    @property
    def needs_source(self) -> bool:
        """Whether the source prediction or its shift is needed before the views are classified."""
        return self.options.needs_source or self.options.clean_views is not None

    @property
    def _source_is_known(self) -> bool:
        """Whether the source's pass was made already, as this method would make it."""
        return self.needs_source and self.options.precision == "float32"

    def _passes(
        self, views: Tensor, sizes: Sequence[int], known: MeasuredPass | None, meter: ShiftMeter
    ) -> Iterator[MeasuredPass]:
        """Classify views with running statistics, and the last groups each with its own mixed ones."""
        plain, *groups = torch.split(views, [len(views) - sum(sizes), *sizes])
        if known is not None and len(plain) > 0:
            yield known
            plain = plain[1:]
        if len(plain) > 0:
            yield self._classify(plain, meter)
        with mixed_statistics(self.classifier.module, self.options.prior_strength) as statistics:
            for group in groups:
                self.fix_statistics(statistics, group[:1])
                meter.shift()  # of the forward pass that fixed the statistics
                yield self._classify(group, meter)

    @torch.no_grad()
    def _classify(self, views: Tensor, meter: ShiftMeter) -> MeasuredPass:
        """Return the logits and the shift of the views, computed without a graph."""
        parts = torch.split(views, self.options.micro_batch or len(views))
        return MeasuredPass.joined([MeasuredPass(self.forward(part), meter.shift()) for part in parts])

    def _averages(self, passed: MeasuredPass, with_image: bool) -> tuple[Tensor, Tensor]:
        """Return log-probabilities: the average over all views, and what the prediction is made from."""
        if self._is_by_shift and passed.shift is not None:
            average = by_shift(passed.logits, passed.shift, with_image)
            return average, average
        return self._average(passed.logits), self._combine(passed.logits)
