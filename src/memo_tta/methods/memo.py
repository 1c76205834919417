"""MEMO: one gradient step on the entropy of the view-averaged prediction (Algorithm 1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.image import ImageLike
from memo_tta.methods.bn import warn_without_layers
from memo_tta.methods.budget import BUDGETS, Pace
from memo_tta.methods.continual import Anchored, Carried
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import NOT_FINITE, ViewGradient, forward_in_chunks
from memo_tta.methods.ledger import Ledger
from memo_tta.methods.method import Batch, Outcome
from memo_tta.methods.options import UpdateOptions, check_above_zero, check_share
from memo_tta.methods.parameters import choose_parameters
from memo_tta.methods.prediction import Prediction
from memo_tta.methods.viewing import DrawViews, ViewMethod, ViewOptions
from memo_tta.models.batchnorm import MixedStatistics, mixed_statistics, norm_layers
from memo_tta.models.classifier import Classifier, Point
from memo_tta.objectives import (
    OBJECTIVES,
    entropy,
    group_log_probabilities,
    log_probabilities,
)
from memo_tta.registry import unknown_name
from memo_tta.seeding import SampleId

PREDICT = ("point", "marginal", "group")
RESETS = ("always", "never", "anchor")


@dataclass(frozen=True, kw_only=True)
class MemoOptions(UpdateOptions, ViewOptions):
    """The paper's options, and what it leaves as future work (`skip_confidence`)."""

    objective: str | Callable[[Tensor], Tensor] = "marginal_entropy"
    threshold: float | None = None  # adapt above this share of log K of marginal entropy (appendix A)
    skip_confidence: float | None = None  # adapt unless the source prediction is at least this sure
    budget: str = "full"  # or "fast": a preset of skip_confidence and the early options
    budget_seconds: float | None = None  # fewer views than n_views, if a point would take longer
    select: float | None = None  # adapt on this share of the views, those of lowest entropy
    predict: str = "point"  # with the adapted model: of the point, the average of views, or the surest group
    carry_optimizer: bool = False  # let moments leak from point to point, as the authors' script does
    reset: str = "always"  # or weights live on: "never" reset, or those of norm layers tied by an "anchor"
    pull: float = 0.01  # of the anchor: so far back to the source after every point that teaches

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.objective, str):
            _ = OBJECTIVES[self.objective]
        if self.threshold is not None:
            check_share("threshold", self.threshold, "[0, 1)", self.threshold != 1)
        if self.skip_confidence is not None:
            check_share("skip_confidence", self.skip_confidence, "(0, 1]", self.skip_confidence != 0)
        if self.budget_seconds is not None:
            check_above_zero("budget_seconds", self.budget_seconds)
        if self.select is not None:
            check_share("select", self.select, "(0, 1]", self.select != 0)
        if self.predict not in PREDICT:
            raise unknown_name("predict", self.predict, PREDICT)
        if self.reset not in RESETS:
            raise unknown_name("reset", self.reset, RESETS)
        check_share("pull", self.pull, "(0, 1]", self.pull != 0)
        if self.weighting != "uniform":
            what = f"weighting: {self.weighting!r}"
            if self.objective != "marginal_entropy":
                raise ConfigError(f"{what} weighs the marginal, so objective must be 'marginal_entropy'")
            if self.select is not None:
                raise ConfigError(f"{what} and select={self.select} both choose among views: give one")
        if self.objective == "pairwise_cross_entropy" and self.selected(self.n_views) < 2:
            raise ConfigError(
                "objective: pairwise_cross_entropy compares views, so n_views and select must leave 2 or more"
            )

    def selected(self, views: int) -> int:
        """How many of so many views the objective sees."""
        return views if self.select is None else max(1, round(self.select * views))


@dataclass(frozen=True)
class Explanation:
    """A prediction, and what the model says of each view before and after adapting to all of them."""

    prediction: Prediction
    views: Tensor  # as the module takes them, [B, ...]
    before: list[Prediction]
    after: list[Prediction]


class Memo(ViewMethod[MemoOptions]):
    """Adapts to one point, predicts, and leaves the model as it was.

    Its options are the fields of `MemoOptions`; they default to the classifier's settings. Unless `reset`
    is "always", it goes on from what it learnt; the adapted weights are kept here.
    """

    options_type = MemoOptions
    from_settings = frozenset(MemoOptions.__dataclass_fields__)

    def __init__(self, classifier: Classifier, **options: Any):
        for name in classifier.settings:
            if name not in self.from_settings:
                raise unknown_name("setting of the classifier", name, self.from_settings)
        budget = options.get("budget", classifier.settings.get("budget", "full"))
        super().__init__(classifier, **{**BUDGETS[budget], **options})
        if options.get("prior_strength") is not None:
            warn_without_layers(classifier)
        objective = self.options.objective
        self._objective = OBJECTIVES[objective] if isinstance(objective, str) else objective
        if objective == "marginal_entropy":
            self._objective = self._marginal_entropy
        self._parameters = choose_parameters(classifier.module, self.options.params)
        seconds = self.options.budget_seconds
        self._pace = None if seconds is None else Pace(seconds, self.options.n_views)
        self._carried = self._carrying()
        self.reset()

    @property
    def online(self) -> bool:
        return self.options.carry_optimizer or self._carried is not None

    @property
    def n_views(self) -> int:
        return super().n_views if self._pace is None else self._pace.views

    def reset(self) -> None:
        self._rule = self.options.update_rule()
        if self._carried is not None:
            self._carried.forget()

    def _carrying(self) -> Carried | None:
        if self.options.reset != "anchor":
            return Carried(self._parameters) if self.options.reset == "never" else None
        norms = {
            id(p) for layer in norm_layers(self.classifier.module) for p in layer.parameters(recurse=False)
        }
        carried = [p for p in self._parameters if id(p) in norms]
        if not carried:
            raise ConfigError(
                "reset: 'anchor' carries the parameters of norm layers, and none of those is adapted "
                f"(params={self.options.params!r}): use 'always', or other params"
            )
        return Anchored(carried, self.options.pull)

    def explain(
        self,
        image: ImageLike | Tensor | Point,
        *,
        sample_id: SampleId | None = None,
        ledger: Ledger | None = None,
    ) -> Explanation:
        """Predict, and keep the views of the last step with the model's answers to them.

        A point that is not adapted to (see `reason`) has none. The ledger is for what was done before.
        """
        batch = self._batch([self.classifier.point(image)], [sample_id], ledger or Ledger())
        seen: list[Tensor] = []
        outcome = self._run_point(batch, self._drawing(batch), seen)
        (prediction,) = self._predictions(batch, [outcome])
        views, before, after = seen or (batch.x[:0], [], [])
        labels = self.classifier.labels
        answers = ([Prediction(row.cpu(), labels) for row in rows] for rows in (before, after))
        return Explanation(prediction, views, *answers)

    def run_point(self, batch: Batch, draw: DrawViews) -> Outcome:
        return self._run_point(batch, draw, None)

    def _run_point(self, batch: Batch, draw: DrawViews, seen: list[Tensor] | None) -> Outcome:
        if (reason := self._sure_already(batch)) is not None:
            return Outcome(None, reason=reason)
        began = perf_counter()
        label = None if self.options.early_views is None else int(self.source_logits(batch)[0].argmax())
        module, rule = self.classifier.module, self._rule.copy()
        with episode(module, self._parameters), self.computing():
            if self._carried is not None:
                self._carried.put()
            views = draw()
            if label is not None and (reason := self.agreed(label, views)) is not None:
                return Outcome(None, reason=reason)
            with mixed_statistics(module, self.options.prior_strength) as statistics:
                look = self._look(views, batch.x, statistics)
                if statistics.mixes_nothing and self.options.micro_batch is None and self._carried is None:
                    # The model was still the source, so this is what test-time augmentation sees.
                    batch.ledger.keep(("logits", self.first_views), look.logits.detach(), look.seconds)
                first_entropy = _number(self._marginal_entropy(look.logits.detach()))
                if (reason := self._low_entropy(first_entropy, look.logits)) is not None:
                    return Outcome(None, reason=reason, marginal_entropy=first_entropy)
                for step in range(self.options.steps):
                    if step > 0:
                        look = self._look(draw(), batch.x, statistics)
                    loss = self._objective(self._select(look.logits))
                    if not look.descend(loss, self._parameters, rule):
                        return Outcome(None, reason=NOT_FINITE, marginal_entropy=first_entropy)
                with batch.ledger.stage("predict"):
                    logits = self._answer(batch.x, look.views, statistics)
                if seen is not None:
                    after = forward_in_chunks(self.classifier, look.views, self.options.micro_batch)
                    seen += [look.views, look.logits.detach(), after]
            kept = None if self._carried is None else self._carried.taken()
        if self._carried is not None and kept is not None:
            self._carried.learn(kept, logits, self.source_logits(batch)[0], first_entropy)
        if self.options.carry_optimizer:
            self._rule = rule
        if self._pace is not None:
            self._pace.learn(len(views), perf_counter() - began)
        return Outcome(logits, adapted=True, marginal_entropy=first_entropy)

    def _look(self, views: Tensor, x: Tensor, statistics: MixedStatistics) -> ViewGradient:
        """See what the model says of the views."""
        self._settle_statistics(statistics, x)
        return ViewGradient(self.classifier, views, self.options.micro_batch)

    def _sure_already(self, batch: Batch) -> str | None:
        limit = self.options.skip_confidence
        if limit is None:
            return None
        confidence = float(self.source_logits(batch)[0].softmax(dim=0).max())
        return f"source confidence {confidence:.3f} >= {limit}" if confidence >= limit else None

    def _low_entropy(self, value: float | None, logits: Tensor) -> str | None:
        if self.options.threshold is None or value is None:
            return None
        limit = self.options.threshold * math.log(logits.shape[1])
        return f"marginal entropy {value:.3f} <= {limit:.3f}" if value <= limit else None

    def _marginal_entropy(self, logits: Tensor) -> Tensor:
        return entropy(self.marginal(logits))

    def _select(self, logits: Tensor) -> Tensor:
        if self.options.select is None:
            return logits
        count = self.options.selected(len(logits))
        return logits[entropy(log_probabilities(logits.detach())).topk(count, largest=False).indices]

    def _settle_statistics(self, statistics: MixedStatistics, x: Tensor) -> None:
        # Batch norm couples the views of a batch; chunks are exact only with statistics that are
        # fixed before, those of the point.
        if self.options.micro_batch is not None:
            statistics.fix(lambda: self.classifier(x))

    @torch.no_grad()
    def _answer(self, x: Tensor, views: Tensor, statistics: MixedStatistics) -> Tensor:
        if self.options.predict == "point":
            statistics.release()
            return self.classifier(x)[0]
        self._settle_statistics(statistics, x)
        logits = forward_in_chunks(self.classifier, views, self.options.micro_batch)
        if self.options.predict == "marginal":
            return self.marginal(logits)
        averages, _ = group_log_probabilities(logits, self._groups(len(logits)))
        return averages[entropy(averages).argmin()]


def _number(value: Tensor) -> float | None:
    return float(value) if value.isfinite() else None
