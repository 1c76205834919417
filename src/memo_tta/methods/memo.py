"""MEMO: one gradient step on the entropy of the view-averaged prediction (Algorithm 1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.image import ImageLike
from memo_tta.methods.bn import warn_without_layers
from memo_tta.methods.continual import Anchored, Carried
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import NOT_FINITE, ViewGradient, forward_in_chunks
from memo_tta.methods.ledger import Ledger
from memo_tta.methods.memo_options import MemoOptions
from memo_tta.methods.method import Batch, Outcome
from memo_tta.methods.pace import Pace
from memo_tta.methods.parameters import choose_parameters
from memo_tta.methods.prediction import Prediction
from memo_tta.methods.presets import expanded
from memo_tta.methods.viewing import NOTHING_ADAPTED, DrawViews, ViewMethod
from memo_tta.models.batchnorm import MixedStatistics, mixed_statistics, norm_layers
from memo_tta.models.classifier import Classifier, Point
from memo_tta.objectives import (
    OBJECTIVES,
    entropy,
    group_log_probabilities,
    log_probabilities,
    marginal_log_probabilities,
    weighted_log_probabilities,
)
from memo_tta.registry import unknown_name
from memo_tta.seeding import SampleId
from memo_tta.views import Restore


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
        super().__init__(classifier, **expanded(options, classifier.settings))
        if options.get("prior_strength") is not None:
            warn_without_layers(classifier)
        objective = self.options.objective
        self._objective = OBJECTIVES[objective] if isinstance(objective, str) else objective
        if objective == "marginal_entropy":
            self._objective = self._marginal_entropy
        self._parameters = (
            choose_parameters(classifier.module, self.options.params) if self.options.steps else []
        )
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
        with episode(self.classifier.module, self._parameters), self.computing():
            if self._carried is not None:
                self._carried.put()
            if label is not None and (reason := self._agreed(label, draw)) is not None:
                return Outcome(None, reason=reason)
            views = draw()
            with mixed_statistics(self.classifier.module, self.options.prior_strength) as statistics:
                if self.options.steps:
                    outcome = self._adapt(batch, views, draw, statistics, seen)
                else:
                    outcome = self._average(batch, views, statistics, seen)
            kept = None if self._carried is None else self._carried.taken()
        if outcome.logits is None:
            return outcome
        if self._carried is not None and kept is not None:
            source = self.source_logits(batch)[0]
            self._carried.learn(kept, outcome.logits, source, outcome.marginal_entropy)
        if self._pace is not None:
            self._pace.learn(len(views), perf_counter() - began)
        return outcome

    def _adapt(
        self,
        batch: Batch,
        views: Tensor,
        draw: DrawViews,
        statistics: MixedStatistics,
        seen: list[Tensor] | None,
    ) -> Outcome:
        """Algorithm 1; the weights stay adapted."""
        rule = self._rule.copy()
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
        if self.options.carry_optimizer:
            self._rule = rule
        return Outcome(logits, adapted=True, marginal_entropy=first_entropy)

    def _average(
        self, batch: Batch, views: Tensor, statistics: MixedStatistics, seen: list[Tensor] | None
    ) -> Outcome:
        """What the views say together, without a step."""
        said = self._said(batch.x, views, statistics)
        if seen is not None:
            seen += [views, said, said]
        marginal_entropy = _number(self._marginal_entropy(said))
        return Outcome(self._together(said), reason=NOTHING_ADAPTED, marginal_entropy=marginal_entropy)

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

    def _agreed(self, label: int, draw: DrawViews) -> str | None:
        """Why the source's label needs no more views than the first ones, if it needs none."""
        views = draw(first=self.options.early_views)
        with torch.no_grad():
            scores = self.classifier(views).softmax(dim=1)
        confidence = float(scores[:, label].mean())
        if confidence < self.options.early_confidence or bool((scores.argmax(dim=1) != label).any()):
            return None
        return f"the first {len(scores)} views agree with the source, confidence {confidence:.3f}"

    def _low_entropy(self, value: float | None, logits: Tensor) -> str | None:
        if self.options.threshold is None or value is None:
            return None
        limit = self.options.threshold * math.log(logits.shape[1])
        return f"marginal entropy {value:.3f} <= {limit:.3f}" if value <= limit else None

    def _marginal_entropy(self, logits: Tensor) -> Tensor:
        return entropy(self._marginal(logits))

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
        return self._together(self._said(x, views, statistics))

    def _said(self, x: Tensor, views: Tensor, statistics: MixedStatistics) -> Tensor:
        """Logits of the views, without a graph."""
        self._settle_statistics(statistics, x)
        return forward_in_chunks(self.classifier, views, self.options.micro_batch)

    def _together(self, logits: Tensor) -> Tensor:
        """One answer from those of the views."""
        if self.options.predict == "marginal":
            return self._marginal(logits)
        averages, _ = group_log_probabilities(logits, self._groups(len(logits)))
        return averages[entropy(averages).argmin()]

    def _marginal(self, logits: Tensor) -> Tensor:
        """Log of the average prediction over the views, as it is weighted."""
        if self.options.weighting == "uniform":
            return marginal_log_probabilities(logits)
        return weighted_log_probabilities(logits, self.options.temperature, self._groups(len(logits)))

    def _groups(self, n: int) -> Sequence[int] | None:
        """How many views each group has; None where every view stands for itself."""
        return list(self._augment.groups(n).values()) if isinstance(self._augment, Restore) else None


def _number(value: Tensor) -> float | None:
    return float(value) if value.isfinite() else None
