"""MEMO: one gradient step on the entropy of the view-averaged prediction (Algorithm 1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.methods.average import AverageOptions, SurestGroup, build_average
from memo_tta.methods.bn import warn_without_layers
from memo_tta.methods.episode import episode
from memo_tta.methods.gates import GateOptions, entropy_gate, first_views_gate, source_gate
from memo_tta.methods.gradient import NOT_FINITE, ViewGradient
from memo_tta.methods.memory import MemoryOptions, build_memory
from memo_tta.methods.method import Batch, Outcome, SeenViews
from memo_tta.methods.options import Number, OneOf, check_names, option, when, with_default
from memo_tta.methods.parameters import choose_parameters
from memo_tta.methods.prediction import Status
from memo_tta.methods.update import UpdateOptions
from memo_tta.methods.view_method import ViewMethod
from memo_tta.methods.view_source import ViewOptions, Views
from memo_tta.models.batch_norm import MixedStatistics, mixed_statistics
from memo_tta.models.classifier import Classifier
from memo_tta.objectives import OBJECTIVES, entropy, most_confident, share_of


@dataclass(frozen=True, kw_only=True)
class MemoOptions(MemoryOptions, AverageOptions, GateOptions, UpdateOptions, ViewOptions):
    """The paper's options, and what it leaves as future work."""

    objective: str | Callable[[Tensor], Tensor] = option(
        "marginal_entropy",
        OneOf("objective", OBJECTIVES, or_callable=True),
        "what the step minimises; a function takes logits [B, K]",
    )
    threshold: float | None = option(
        None, Number("[0, 1)"), "adapt only above this share of log K of marginal entropy"
    )
    select: float | None = option(
        None, Number("(0, 1]"), "adapt on this share of the views, those of lowest entropy"
    )
    predict: str = option(
        "point",
        OneOf("predict", ("point", "marginal", "group")),
        "what the adapted model answers from: the point itself, all views together, or their surest group",
    )
    weighting: str = with_default(
        AverageOptions,
        "weighting",
        "uniform",
        needs=[
            when("objective", "marginal_entropy"),  # it weighs the marginal
            when("select", None),  # both choose among views
        ],
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective == "pairwise_cross_entropy" and share_of(self.n_views, self.select) < 2:
            raise ConfigError(
                "objective: pairwise_cross_entropy compares views, so n_views and select must leave 2 or more"
            )


class Memo(ViewMethod[MemoOptions]):
    """Adapts to one point, predicts, and leaves the model as it was.

    Options default to the classifier's settings. Unless `reset` is "always", the method goes on from what it
    learnt; the adapted weights are kept here, and the module has its own back after each call.
    """

    options_type = MemoOptions
    from_settings = frozenset(MemoOptions.__dataclass_fields__)
    needs_gradients = True

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        if options.get("prior_strength") is not None:
            warn_without_layers(classifier)
        chosen = self.options.objective
        self.objective = OBJECTIVES[chosen] if isinstance(chosen, str) else chosen
        groups = self._augmenter.groups
        self.average = build_average(self.options, groups)
        self.answer_of_views = SurestGroup(groups) if self.options.predict == "group" else self.average
        if self.options.weighting != "uniform":
            self.objective = lambda logits: entropy(self.average(logits))
        self.parameters = choose_parameters(classifier.module, self.options.params)
        self.memory = build_memory(self.options, self.options.update_rule, classifier.module, self.parameters)

    @classmethod
    def resolve(cls, settings: Any, options: Any) -> MemoOptions:
        check_names(settings, cls.from_settings, "setting of the classifier")
        return super().resolve(settings, options)

    @property
    def online(self) -> bool:
        return self.memory.online

    def reset(self) -> None:
        self.memory.forget()

    def run_point(self, batch: Batch, views: Views) -> Outcome:
        """Algorithm 1, between gates and memory."""
        options, module, seen = self.options, self.classifier.module, None
        source = self.source_logits(batch)[0] if options.look_at_source or self.online else None
        if reason := source_gate(options, source):
            return Outcome(Status.GATED, reason=reason)
        with episode(module, self.parameters):
            rule = self.memory.recall()
            if reason := first_views_gate(options, source, lambda n: self.view_logits(views.first(n))):
                return Outcome(Status.GATED, reason=reason)
            with mixed_statistics(module, options.prior_strength) as statistics:
                look = self.look(views.draw(), batch.x, statistics)
                marginal_entropy = float(entropy(self.average(look.logits.detach())))
                if reason := entropy_gate(options.threshold, marginal_entropy, look.logits.shape[1]):
                    return Outcome(Status.GATED, None, reason, marginal_entropy)
                for step in range(options.steps):
                    if step > 0:
                        look = self.look(views.draw(), batch.x, statistics)
                    loss = self.objective(most_confident(look.logits, options.select))
                    if not look.descend(loss, self.parameters, rule):
                        return Outcome(Status.NOT_FINITE, None, NOT_FINITE, marginal_entropy)
                with batch.work.stage("predict"):
                    logits = self.answer(look.views, batch.x, statistics)
                if batch.explain:
                    self.settle(statistics, batch.x)
                    seen = SeenViews(look.views, look.logits.detach(), self.view_logits(look.views))
            lasting = self.memory.take(rule)
        if lasting is not None and source is not None:
            self.memory.learn(lasting, logits, source, marginal_entropy)
        return Outcome(Status.ADAPTED, logits, None, marginal_entropy, seen)

    def look(self, views: Tensor, x: Tensor, statistics: MixedStatistics) -> ViewGradient:
        """Logits of the views, with what their gradient needs."""
        self.settle(statistics, x)
        return ViewGradient(self.forward, views, self.options.micro_batch)

    @torch.no_grad()
    def answer(self, views: Tensor, x: Tensor, statistics: MixedStatistics) -> Tensor:
        """Predict with the adapted weights."""
        if self.options.predict == "point":
            statistics.release()
            return self.forward(x)[0]
        self.settle(statistics, x)
        return self.answer_of_views(self.view_logits(views))
