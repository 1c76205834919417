"""CoTTA (Wang et al., 2022): learn from an averaged teacher, and restore some weights at random."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memo_tta.methods.gradient import ForwardPass
from memo_tta.methods.method import Batch, Outcome
from memo_tta.methods.options import Number, option, with_default
from memo_tta.methods.parameters import ParameterChoice, keeping_values
from memo_tta.methods.tent import BatchSteps, Step, TentOptions
from memo_tta.methods.update import UpdateRule
from memo_tta.methods.view_source import Augmenter, ViewOptions
from memo_tta.models.classifier import Classifier
from memo_tta.objectives import log_probabilities, marginal_log_probabilities
from memo_tta.views import Augmentation


@dataclass(frozen=True, kw_only=True)
class CoTTAOptions(TentOptions):
    """The published settings for CIFAR-10, but for the batch size and the augmentation."""

    optimizer: str = with_default(TentOptions, "optimizer", "adam")
    lr: float = with_default(TentOptions, "lr", 0.001)
    params: ParameterChoice = with_default(TentOptions, "params", "all")
    teacher_momentum: float = option(
        0.999, Number("[0, 1)"), "share of its weights that the teacher keeps at every step"
    )
    restore_share: float = option(
        0.01,
        Number("[0, 1]"),
        "share of the weights, drawn at random, that return to the source at every step",
    )
    augment_below: float = option(
        0.92,
        Number("[0, 1]"),
        "the teacher averages over views if the source's confidence, averaged over the batch, is below this",
    )
    teacher_views: int = option(
        32, Number("[1, inf)", whole=True), "number of views of each image that the teacher averages over"
    )
    augment: str | Augmentation = with_default(
        ViewOptions, "augment", "augmix", meaning="how these views are made, as in memo"
    )


@dataclass(frozen=True)
class Teacher:
    """Weights of the teacher, and those of the source to which weights are restored."""

    weights: list[Tensor]
    source: list[Tensor]


class CoTTA(BatchSteps[CoTTAOptions]):
    """Learn from a teacher, whose weights are the average of the student's; online, the teacher predicts."""

    options_type = CoTTAOptions

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._augmenter = Augmenter(classifier, self.options.augment)

    def run(self, batch: Batch) -> list[Outcome]:
        self.source_logits(batch)  # before weights change: the steps ask for them
        return super().run(batch)

    def step(self, batch: Batch, rule: UpdateRule, notes: Teacher | None) -> Step | None:
        teacher = notes or Teacher(*([p.detach().clone() for p in self._parameters] for _ in range(2)))
        with keeping_values(self._parameters):
            for parameter, value in zip(self._parameters, teacher.weights, strict=True):
                parameter.data.copy_(value)
            wanted = self._teach(batch)
        forward = ForwardPass(self.classifier, batch.x, micro_batch=None)
        loss = -(log_probabilities(wanted).exp() * log_probabilities(forward.logits)).sum(dim=1).mean()
        if not forward.descend(loss, self._parameters, rule):
            return None
        keep = self.options.teacher_momentum
        rows = zip(teacher.weights, self._parameters, strict=True)
        weights = [old.lerp(new.detach(), 1 - keep) for old, new in rows]
        restore_some(self._parameters, teacher.source, self.options.restore_share, batch.rngs[0])
        return Step(wanted, Teacher(weights, teacher.source))

    @torch.no_grad()
    def _teach(self, batch: Batch) -> Tensor:
        """Return the teacher's logits (points, classes); its average over views if the source is unsure."""
        confidence = log_probabilities(self.source_logits(batch)).exp().max(dim=1).values.mean()
        if not confidence < self.options.augment_below:
            return self.classifier(batch.x)
        passes: list[Tensor] = []
        for _ in range(self.options.teacher_views):
            rows = zip(batch.points, batch.rngs, strict=True)
            views = torch.cat([self._augmenter(point, 1, rng) for point, rng in rows])
            passes.append(self.classifier(views))
        return marginal_log_probabilities(torch.stack(passes)).to(passes[0].dtype)


def restore_some(
    tensors: Sequence[Tensor], source: Sequence[Tensor], share: float, rng: np.random.Generator
) -> None:
    """Set each number to its source value with this probability, in place."""
    for tensor, value in zip(tensors, source, strict=True):
        chosen = torch.as_tensor(rng.random(tuple(tensor.shape)) < share, device=tensor.device)
        tensor.data.copy_(value.where(chosen, tensor.data))
