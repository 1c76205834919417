"""Tent (Wang et al., 2021): minimise the average entropy of a batch of different points."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memo_tta.methods.bn import BatchNormOptions
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import NOT_FINITE, ForwardPass
from memo_tta.methods.memory import Carried, Forgetful
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Flag, option, with_default
from memo_tta.methods.parameters import ParameterChoice, choose_parameters
from memo_tta.methods.prediction import Status
from memo_tta.methods.update import UpdateOptions
from memo_tta.models.batch_norm import mixed_statistics
from memo_tta.models.classifier import Classifier
from memo_tta.objectives import conditional_entropy


@dataclass(frozen=True, kw_only=True)
class TentOptions(UpdateOptions):
    """Tent's published settings; with prior strength 0, statistics come from the test batch alone."""

    momentum: float = with_default(UpdateOptions, "momentum", 0.9)
    params: ParameterChoice = with_default(UpdateOptions, "params", "norm")
    prior_strength: float | None = with_default(UpdateOptions, "prior_strength", 0)
    batch_size: int = with_default(BatchNormOptions, "batch_size", 64)
    online: bool = option(True, Flag(), "whether weights and moments are kept from batch to batch")


class Tent(Method[TentOptions]):
    """Minimise the entropy of a batch; online, keep weights and moments until `reset`.

    Adapted weights are stored in the method; the module is restored after every call. Online, the prediction
    is that of the forward pass that adapts. Episodic, every batch starts from the source, and the adapted
    model predicts.
    """

    options_type = TentOptions
    needs_gradients = True

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._parameters = choose_parameters(classifier.module, self.options.params)
        rule = self.options.update_rule
        self._memory = Carried(rule, self._parameters, carry_rule=True) if self.online else Forgetful(rule)

    @property
    def points(self) -> int:
        return self.options.batch_size

    @property
    def online(self) -> bool:
        return self.options.online

    def reset(self) -> None:
        self._memory.forget()

    def run(self, batch: Batch) -> list[Outcome]:
        module, x = self.classifier.module, batch.x
        not_finite = [Outcome(Status.NOT_FINITE, reason=NOT_FINITE)] * len(batch.points)
        with (
            episode(module, self._parameters),
            mixed_statistics(module, self.options.prior_strength, len(batch.points)),
        ):
            rule = self._memory.recall()
            rows: list[Tensor] = []
            for _ in range(self.options.steps):
                forward = ForwardPass(self.classifier, x, micro_batch=None)
                if not forward.descend(conditional_entropy(forward.logits), self._parameters, rule):
                    return not_finite
                rows = list(forward.logits.detach())
            if not self.online:
                with torch.no_grad():
                    rows = list(self.classifier(x))
            state = self._memory.capture(rule)
        if self.online:
            if state is None:
                return not_finite
            self._memory.store(state)
        return [Outcome(Status.ADAPTED, row) for row in rows]
