"""Tent (Wang et al., 2021): minimise the average entropy of a batch of different points."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from memo_tta.methods.bn import BatchNormOptions
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import NOT_FINITE, ForwardPass
from memo_tta.methods.memory import AdaptedState, Carried, Forgetful
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Flag, option, with_default
from memo_tta.methods.parameters import ParameterChoice, choose_parameters
from memo_tta.methods.prediction import Status
from memo_tta.methods.update import UpdateOptions, UpdateRule
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


AnyTentOptions = TypeVar("AnyTentOptions", bound=TentOptions)


@dataclass(frozen=True)
class Step:
    """What a step leaves: the logits (points, classes) of its first pass, and what to remember."""

    logits: Tensor
    notes: Any = None


class BatchSteps(Method[AnyTentOptions]):
    """Take gradient steps on batches of points; online, keep weights and moments until `reset`.

    Adapted weights are stored in the method; the module is restored after every call. Online, the prediction
    is that of the forward pass that adapts. Episodic, every batch starts from the source, and the adapted
    model predicts.
    """

    needs_gradients = True

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        self._parameters = self.choose_parameters()
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

    def choose_parameters(self) -> list[Parameter]:
        """Return the parameters that the steps adapt."""
        return choose_parameters(self.classifier.module, self.options.params)

    @abstractmethod
    def step(self, batch: Batch, rule: UpdateRule, notes: Any) -> Step | None:
        """Take one step within an episode; return None if the loss or a gradient was not finite.

        The notes are what the last step has left, None before the first.
        """

    def store(self, state: AdaptedState) -> None:
        """Keep the state for the next batch."""
        self._memory.store(state)

    def run(self, batch: Batch) -> list[Outcome]:
        module = self.classifier.module
        not_finite = [Outcome(Status.NOT_FINITE, reason=NOT_FINITE)] * len(batch.points)
        with (
            episode(module, self._parameters),
            mixed_statistics(module, self.options.prior_strength, len(batch.points)),
        ):
            rule = self._memory.recall()
            logits, notes = batch.x[:0], self._memory.notes
            for _ in range(self.options.steps):
                step = self.step(batch, rule, notes)
                if step is None:
                    return not_finite
                logits, notes = step.logits, step.notes
            if not self.online:
                with torch.no_grad():
                    logits = self.classifier(batch.x)
            state = self._memory.capture(rule, notes)
        if self.online:
            if state is None:
                return not_finite
            self.store(state)
        return [Outcome(Status.ADAPTED, row) for row in logits]


class Tent(BatchSteps[TentOptions]):
    """Minimise the entropy of a batch; online, keep weights and moments until `reset`.

    Online, the prediction is that of the forward pass that adapts. Episodic, every batch starts from the
    source, and the adapted model predicts.
    """

    options_type = TentOptions

    def step(self, batch: Batch, rule: UpdateRule, notes: None) -> Step | None:
        forward = ForwardPass(self.classifier, batch.x, micro_batch=None)
        loss = conditional_entropy(forward.logits)
        is_finite = forward.descend(loss, self._parameters, rule)
        return Step(forward.logits.detach()) if is_finite else None
