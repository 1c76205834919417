"""Test-time augmentation: average the predictions over views, without adaptation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memo_tta.methods.average import AverageOptions, SurestGroup, Vote, build_average, by_shift
from memo_tta.methods.episode import episode
from memo_tta.methods.gates import GateOptions, first_views_gate, source_gate
from memo_tta.methods.method import Batch, MeasuredPass, Outcome, SeenViews
from memo_tta.methods.options import Number, OneOf, option, when, with_default
from memo_tta.methods.prediction import Status
from memo_tta.methods.shared_passes import SharedPassOptions
from memo_tta.methods.view_method import NOT_NEEDED, ViewMethod
from memo_tta.methods.view_source import ViewOptions, Views
from memo_tta.models.batch_norm import can_mix_groups, mixed_statistics
from memo_tta.models.classifier import Classifier, Point
from memo_tta.models.shift import SHIFTED, ShiftMeter, cleanness, measuring_shift
from memo_tta.objectives import entropy


@dataclass(frozen=True, kw_only=True)
class TTAOptions(SharedPassOptions, AverageOptions, GateOptions, ViewOptions):
    """Views, gates, and how views are combined."""

    predict: str = option(
        "marginal",
        OneOf("predict", ("marginal", "group", "vote")),
        "what the prediction is made from: the average of all views, their most confident group, or a vote",
    )
    voters: float = option(
        0.1,
        Number("(0, 1]"),
        "share of the views that vote, those of lowest entropy",
        needs=[when("predict", "vote")],
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


@dataclass(frozen=True)
class _Views:
    """The views of one point, and what is known about them before they are classified."""

    views: Tensor
    with_image: bool  # whether the first view is the image itself
    known: MeasuredPass | None  # the source's pass, if that is how the first view would be classified
    mixed_groups: list[int]  # sizes of the last groups, those to classify with mixed statistics

    @property
    def plain(self) -> Tensor:
        """The views that are left to classify with running statistics."""
        first = 0 if self.known is None else 1
        return self.views[first : len(self.views) - sum(self.mixed_groups)]

    @property
    def mixed(self) -> Tensor:
        """The views to classify with mixed statistics."""
        return self.views[len(self.views) - sum(self.mixed_groups) :]


class TTA(ViewMethod[TTAOptions]):
    """Average probabilities, not logits (eq. 1); the returned logits are the log of that average."""

    options_type = TTAOptions
    from_settings = frozenset({"n_views"})

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        groups = self._augmenter.groups
        self._average = build_average(self.options, groups)
        others = {"group": SurestGroup(groups), "vote": Vote(self.options.voters)}
        self._combine = others.get(self.options.predict, self._average)
        self._is_by_shift = self.options.weighting == "shift"
        self._mixes = self.options.prior_strength is not None and len(self._statistics_layers) > 0

    @property
    def batch_points(self) -> int:
        return self.options.points_with(self._augmenter.count(self.options.n_views), self.classifier)

    @property
    def needs_source(self) -> bool:
        """Whether the source prediction or its shift is needed before the views are classified."""
        return self.options.needs_source or self.options.clean_views is not None

    def run(self, batch: Batch) -> list[Outcome]:
        return self.run_points(batch, self.draw_views(batch))

    def run_point(self, batch: Batch, views: Views) -> Outcome:
        (outcome,) = self.run_points(batch, [views])
        return outcome

    def run_points(self, batch: Batch, views: Sequence[Views]) -> list[Outcome]:
        """Return the outcomes of the points, from their views; the views of all points share passes."""
        sources = self._source_passes(batch)
        reasons = [source_gate(self.options, *_single(source)) for source in sources]
        with episode(self.classifier.module):
            reasons = self._first_views_gates(reasons, sources, views)
            left = [index for index, reason in enumerate(reasons) if reason is None]
            drawn = [self._draw(batch.points[index], views[index], sources[index]) for index in left]
            passes = self._classify_all(drawn) if drawn else []
        averaged = (self._average_views(*row, batch.explain) for row in zip(drawn, passes, strict=True))
        return [
            next(averaged) if reason is None else Outcome(Status.GATED, reason=reason) for reason in reasons
        ]

    def _source_passes(self, batch: Batch) -> list[MeasuredPass | None]:
        if not self.needs_source:
            return [None] * len(batch.points)
        return [*self.source_pass(batch).split([1] * len(batch.points))]

    def _first_views_gates(
        self,
        reasons: Sequence[str | None],
        sources: Sequence[MeasuredPass | None],
        views: Sequence[Views],
    ) -> list[str | None]:
        """Apply `early_views` to the points that have no reason yet; their first views share passes."""
        reasons, count = list(reasons), self.options.early_views
        left = [index for index, reason in enumerate(reasons) if reason is None]
        if count is not None and left:
            first = [views[index].first(count) for index in left]
            logits = torch.split(self.view_logits(torch.cat(first)), [len(each) for each in first])
            for index, own in zip(left, logits, strict=True):
                source, _ = _single(sources[index])
                reasons[index] = first_views_gate(self.options, source, own)
        return reasons

    def _draw(self, point: Point, views: Views, source: MeasuredPass | None) -> _Views:
        _, shift = _single(source)
        drawn = views.draw(self.options.clean_views if cleanness(shift) > 0 else None)
        with_image = views.starts_with_image or torch.equal(drawn[0], point.x.to(drawn.device))
        sizes = views.mixed_groups(len(drawn)) if self._mixes else []
        # The source's pass was made already, but in float32.
        is_known = with_image and self.options.precision == "float32" and sum(sizes) < len(drawn)
        return _Views(drawn, with_image, source if is_known else None, sizes)

    def _classify_all(self, drawn: Sequence[_Views]) -> list[MeasuredPass]:
        """Classify the views of all points; return a pass for each point, with its views in order."""
        with measuring_shift(self._statistics_layers if self._is_by_shift else []) as meter:
            plain = iter(self._classify_together([each.plain for each in drawn], meter))
            mixed = iter(self._classify_mixed(drawn, meter))
            passes: list[list[MeasuredPass]] = []
            for each in drawn:
                found = [] if each.known is None else [each.known]
                found += [next(plain)] if len(each.plain) else []
                found += [next(mixed) for _ in each.mixed_groups]
                passes.append(found)
        return [MeasuredPass.joined(found) for found in passes]

    def _classify_together(self, parts: Sequence[Tensor], meter: ShiftMeter) -> list[MeasuredPass]:
        """Classify several stacks of views in shared passes; empty ones are left out."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return []
        return self._classify(torch.cat([*parts]), meter).split([len(part) for part in parts])

    def _classify_mixed(self, drawn: Sequence[_Views], meter: ShiftMeter) -> list[MeasuredPass]:
        """Classify the mixed groups of all points, each with its own mixed statistics."""
        module, prior_strength = self.classifier.module, self.options.prior_strength
        groups = [group for each in drawn for group in torch.split(each.mixed, each.mixed_groups)]
        can_share = can_mix_groups(self._statistics_layers, prior_strength)
        if len(drawn) > 1 and self.options.micro_batch is None and can_share:
            sizes = [len(group) for group in groups]
            with mixed_statistics(module, prior_strength, groups=sizes):
                return self._classify_together(groups, meter)
        passes: list[MeasuredPass] = []
        with mixed_statistics(module, prior_strength) as statistics:
            for group in groups:
                self.fix_statistics(statistics, group[:1], group)
                meter.shift()  # of the forward pass that fixed the statistics
                passes.append(self._classify(group, meter))
        return passes

    @torch.no_grad()
    def _classify(self, views: Tensor, meter: ShiftMeter) -> MeasuredPass:
        """Return the logits and the shift of the views, computed without a graph."""
        parts = torch.split(views, self.options.micro_batch or len(views))
        return MeasuredPass.joined([MeasuredPass(self.forward(part), meter.shift()) for part in parts])

    def _average_views(self, drawn: _Views, passed: MeasuredPass, explain: bool) -> Outcome:
        average, combined = self._averages(passed, drawn.with_image)
        seen = SeenViews(drawn.views, passed.logits, passed.logits) if explain else None
        how = "voted on by" if self.options.predict == "vote" else "averaged over"
        reason = f"{how} the views, nothing adapted"
        return Outcome(Status.AVERAGED, combined, reason, float(entropy(average)), seen)

    def _averages(self, passed: MeasuredPass, with_image: bool) -> tuple[Tensor, Tensor]:
        """Return log-probabilities: the average over all views, and what the prediction is made from."""
        if self._is_by_shift and passed.shift is not None:
            average = by_shift(passed.logits, passed.shift, with_image)
            return average, average
        return self._average(passed.logits), self._combine(passed.logits)


def _single(source: MeasuredPass | None) -> tuple[Tensor | None, float | None]:
    return NOT_NEEDED if source is None else source.single()
