"""MEMO: one gradient step on the entropy of the view-averaged prediction (Algorithm 1)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.methods.average import AverageOptions, SurestGroup, build_average
from memo_tta.methods.bn import warn_without_layers
from memo_tta.methods.episode import episode
from memo_tta.methods.gates import GateOptions, entropy_gate, first_views_gate, source_gate
from memo_tta.methods.gradient import NOT_FINITE, ForwardPass
from memo_tta.methods.memo_together import adapt_together, check_options
from memo_tta.methods.memory import MemoryOptions, build_memory
from memo_tta.methods.method import Batch, Outcome, SeenViews
from memo_tta.methods.options import Number, OneOf, check_names, option, when, with_default
from memo_tta.methods.parameters import choose_parameters
from memo_tta.methods.prediction import Status
from memo_tta.methods.update import UpdateOptions, UpdateRule
from memo_tta.methods.view_method import NOT_NEEDED, ViewMethod
from memo_tta.methods.view_source import ViewOptions, Views
from memo_tta.models.batch_norm import MixedStatistics, mixed_statistics
from memo_tta.models.classifier import Classifier
from memo_tta.models.shift import SHIFTED, cleanness
from memo_tta.objectives import (
    OBJECTIVES,
    entropy,
    marginal_log_probabilities,
    most_confident,
    selected_views,
)


@dataclass(frozen=True, kw_only=True)
class MemoOptions(MemoryOptions, AverageOptions, GateOptions, UpdateOptions, ViewOptions):
    """The paper's options, and those of the extensions: gates, weighted averages and memory."""

    objective: str | Callable[[Tensor], Tensor] = option(
        "marginal_entropy",
        OneOf("objective", OBJECTIVES, or_callable=True),
        "loss that the steps minimise; a function takes logits [B, K]",
    )
    threshold: float | None = option(
        None, Number("[0, 1)"), "adapt only if the marginal entropy exceeds this share of log K"
    )
    select: float | None = option(
        None, Number("(0, 1]"), "adapt on this share of the views only, those of lowest entropy"
    )
    predict: str = option(
        "point",
        OneOf("predict", ("point", "with_source", "marginal", "group")),
        "what the prediction is made from: the image itself, the same averaged with the source prediction, "
        "the average of the views, or their most confident group",
    )
    clean_strength: float | None = option(
        None,
        Number("(0, 1]"),
        f"adapt less to images with a shift below {SHIFTED}: multiply lr by this, and divide prior_strength "
        "by it; no effect on models without batch norm",
    )
    batch_points: int = option(
        1,
        Number("[1, inf)", whole=True),
        "number of images to adapt to at once, if several are given, each with weights of its own; for GPUs",
    )
    weighting: str = with_default(
        AverageOptions,
        "weighting",
        "uniform",
        needs=[
            when("objective", "marginal_entropy"),  # the weights are those of the marginal
            when("select", None),  # which weights the views too, with 0 or 1
        ],
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective == "pairwise_cross_entropy" and selected_views(self.n_views, self.select) < 2:
            raise ConfigError(
                "objective: pairwise_cross_entropy compares views, so n_views and select must leave 2 or more"
            )


class Memo(ViewMethod[MemoOptions]):
    """Adapt to one point by minimising the marginal entropy of its views, predict it, and restore the model.

    Options default to the classifier's settings. Unless `reset` is "always", each point starts from weights
    that earlier points adapted; they are stored in the method, and the module is restored after every call.
    """

    options_type = MemoOptions
    from_settings = frozenset(MemoOptions.__dataclass_fields__)
    needs_gradients = True

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        if options.get("prior_strength") is not None:
            warn_without_layers(classifier)
        groups = self._augmenter.groups
        self.average = build_average(self.options, groups)
        self.combine = SurestGroup(groups) if self.options.predict == "group" else self.average
        self.objective = self._objective()
        self.parameters = choose_parameters(classifier.module, self.options.params)
        self.memory = build_memory(self.options, self.options.update_rule, classifier.module, self.parameters)
        if self.options.batch_points > 1:
            mixes = self.options.prior_strength is not None and len(self._statistics_layers) > 0
            check_options(self.options, mixes)

    @classmethod
    def resolve(cls, settings: Mapping[str, Any], options: Mapping[str, Any]) -> MemoOptions:
        check_names(settings, cls.from_settings, "setting of the classifier")
        return super().resolve(settings, options)

    @property
    def online(self) -> bool:
        return self.memory.online

    def reset(self) -> None:
        self.memory.forget()

    @property
    def needs_source(self) -> bool:
        """Whether the source prediction or its shift is needed beside the adapted prediction."""
        options = self.options
        is_by_shift = options.clean_strength is not None
        return options.needs_source or self.online or is_by_shift or options.predict == "with_source"

    @property
    def batch_points(self) -> int:
        return self.options.batch_points

    def run(self, batch: Batch) -> list[Outcome]:
        if len(batch.points) == 1:
            return super().run(batch)
        passes = self.source_pass(batch).split([1] * len(batch.points)) if self.needs_source else None
        sources = [NOT_NEEDED] * len(batch.points) if passes is None else [one.single() for one in passes]
        reasons = [source_gate(self.options, *source) for source in sources]
        left = [index for index, reason in enumerate(reasons) if reason is None]
        adapted = iter(self._adapt_together(batch, left, sources) if left else ())
        return [
            next(adapted) if reason is None else Outcome(Status.GATED, reason=reason) for reason in reasons
        ]

    def _adapt_together(
        self, batch: Batch, left: Sequence[int], sources: Sequence[tuple[Tensor | None, float | None]]
    ) -> Iterator[Outcome]:
        """Yield the outcomes of the points that are left, which are adapted to at once."""
        views = self.draw_views(batch)
        drawn = torch.stack([views[index].draw() for index in left])
        chosen = {id(p) for p in self.parameters}
        names = [name for name, p in self.classifier.module.named_parameters() if id(p) in chosen]
        rates = [self.options.lr * self._strength(sources[index][1]) for index in left]
        with episode(self.classifier.module, self.parameters):
            x = batch.x[torch.tensor(left)][:, None]
            found = adapt_together(self.classifier, names, self.objective, rates, drawn, x)
        for row, index in enumerate(left):
            marginal_entropy = float(entropy(self.average(found.view_logits[row])))
            if not found.is_finite[row]:
                yield Outcome(Status.NOT_FINITE, None, NOT_FINITE, marginal_entropy)
                continue
            outcome = Outcome(Status.ADAPTED, found.logits[row], None, marginal_entropy)
            yield self._with_source(outcome, sources[index][0])

    def run_point(self, batch: Batch, views: Views) -> Outcome:
        """Adapt and predict, unless a gate keeps the source prediction; update the memory."""
        source, shift = self.source_and_shift(batch) if self.needs_source else NOT_NEEDED
        if reason := source_gate(self.options, source, shift):
            return Outcome(Status.GATED, reason=reason)
        with episode(self.classifier.module, self.parameters):
            rule, strength = self.memory.recall(), self._strength(shift)
            rule.lr = self.options.lr * strength
            if self.options.early_views is not None:
                first_logits = self.view_logits(views.first(self.options.early_views))
                if reason := first_views_gate(self.options, source, first_logits):
                    return Outcome(Status.GATED, reason=reason)
            outcome = self.adapt(batch, views, rule, strength)
            state = None if outcome.logits is None else self.memory.capture(rule)
        if outcome.logits is not None and state is not None and source is not None:
            self.memory.learn(state, outcome.logits, source, outcome.marginal_entropy)
        return self._with_source(outcome, source)

    def _with_source(self, outcome: Outcome, source: Tensor | None) -> Outcome:
        """Average the adapted prediction with the source's, if the options ask for it."""
        if self.options.predict != "with_source" or outcome.logits is None or source is None:
            return outcome
        both = torch.stack([source, outcome.logits])
        return replace(outcome, logits=marginal_log_probabilities(both))

    def adapt(self, batch: Batch, views: Views, rule: UpdateRule, strength: float) -> Outcome:
        """Run Algorithm 1 within an episode: step on the objective of the views, then predict the point.

        The image's own batch-norm statistics have `strength` times their usual weight.
        """
        options, x = self.options, batch.x
        prior_strength = options.prior_strength and options.prior_strength / strength
        with mixed_statistics(self.classifier.module, prior_strength) as statistics:
            forward = self.forward_views(views.draw(), x, statistics)
            marginal_entropy = float(entropy(self.average(forward.logits.detach())))
            if reason := entropy_gate(options.threshold, marginal_entropy, forward.logits.shape[1]):
                return Outcome(Status.GATED, None, reason, marginal_entropy)
            for step in range(options.steps):
                if step > 0:
                    forward = self.forward_views(views.draw(), x, statistics)
                loss = self.objective(most_confident(forward.logits, options.select))
                if not forward.descend(loss, self.parameters, rule):
                    return Outcome(Status.NOT_FINITE, None, NOT_FINITE, marginal_entropy)
            with batch.work.stage("predict"):
                logits = self.predict_adapted(forward.views, x, statistics)
            seen = self._seen_views(forward, x, statistics) if batch.explain else None
        return Outcome(Status.ADAPTED, logits, None, marginal_entropy, seen)

    def forward_views(self, views: Tensor, x: Tensor, statistics: MixedStatistics) -> ForwardPass:
        """Run the views through the model, keeping what their gradient needs."""
        self.fix_statistics(statistics, x, views)
        return ForwardPass(self.forward, views, self.options.micro_batch)

    @torch.no_grad()
    def predict_adapted(self, views: Tensor, x: Tensor, statistics: MixedStatistics) -> Tensor:
        """Return logits (classes,) of the adapted model: of the point, or of its views combined."""
        if self.options.predict in ("point", "with_source"):
            statistics.release()
            return self.forward(x)[0]
        self.fix_statistics(statistics, x, views)
        return self.combine(self.view_logits(views))

    def _strength(self, shift: float | None) -> float:
        """Return how much to adapt, 1 unless `clean_strength` asks for less."""
        return self.options.clean_strength or 1.0 if cleanness(shift) > 0 else 1.0

    def _objective(self) -> Callable[[Tensor], Tensor]:
        chosen = self.options.objective
        if callable(chosen):
            return chosen
        if self.options.weighting != "uniform":  # an option of marginal entropy alone
            return self._weighted_marginal_entropy
        return OBJECTIVES[chosen]

    def _weighted_marginal_entropy(self, logits: Tensor) -> Tensor:
        return entropy(self.average(logits))

    def _seen_views(self, forward: ForwardPass, x: Tensor, statistics: MixedStatistics) -> SeenViews:
        self.fix_statistics(statistics, x, forward.views)
        return SeenViews(forward.views, forward.logits.detach(), self.view_logits(forward.views))
