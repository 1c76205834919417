"""Tent (Wang et al., 2021): minimise the entropy of a batch of different points."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memo_tta.methods.continual import Carried
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import NOT_FINITE, ViewGradient
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import UpdateOptions, check_count
from memo_tta.methods.parameters import ParameterChoice, choose_parameters
from memo_tta.models.batchnorm import mixed_statistics
from memo_tta.models.classifier import Classifier
from memo_tta.objectives import conditional_entropy


@dataclass(frozen=True, kw_only=True)
class TentOptions(UpdateOptions):
    """Tent's published settings; prior strength 0 normalises by the test batch alone."""

    momentum: float = 0.9
    params: ParameterChoice = "norm"
    prior_strength: float | None = 0
    batch_size: int = 64
    online: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("batch_size", self.batch_size)


class Tent(Method[TentOptions]):
    """Online, weights and moments live on from batch to batch until `reset`; else each batch starts anew.

    The adapted weights are kept here: the module has its own back after every call. Online, the
    prediction is that of the forward pass that adapts; episodic, the adapted model predicts.
    """

    options_type = TentOptions

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._parameters = choose_parameters(classifier.module, self.options.params)
        self.reset()

    @property
    def points(self) -> int:
        return self.options.batch_size

    @property
    def online(self) -> bool:
        return self.options.online

    def reset(self) -> None:
        self._rule = self.options.update_rule()
        self._carried = Carried(self._parameters)

    def run(self, batch: Batch) -> list[Outcome]:
        module, x, rule = self.classifier.module, batch.x, self._rule.copy()
        refused = [Outcome(None, reason=NOT_FINITE)] * len(batch.points)
        with (
            episode(module, self._parameters),
            mixed_statistics(module, self.options.prior_strength, len(batch.points)),
        ):
            self._carried.put()
            rows: list[Tensor] = []
            for _ in range(self.options.steps):
                gradient = ViewGradient(self.classifier, x, micro_batch=None)
                if not gradient.descend(conditional_entropy(gradient.logits), self._parameters, rule):
                    return refused
                rows = list(gradient.logits.detach())
            if not self.online:
                with torch.no_grad():
                    return [Outcome(row, adapted=True) for row in self.classifier(x)]
            kept = self._carried.taken()
        if kept is None:
            return refused
        self._rule = rule
        self._carried.keep(kept)
        return [Outcome(row, adapted=True) for row in rows]
