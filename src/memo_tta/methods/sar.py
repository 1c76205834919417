"""SAR (Niu et al., 2023): reliable points, steps towards flat minima, and recovery from a collapse."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import Parameter

from memo_tta.methods.gradient import ForwardPass, all_finite
from memo_tta.methods.memory import AdaptedState
from memo_tta.methods.method import Batch
from memo_tta.methods.options import Number, option, when
from memo_tta.methods.parameters import keeping_values
from memo_tta.methods.reliable import ReliableOptions, ReliableSteps, weighted_entropy
from memo_tta.methods.tent import Step
from memo_tta.methods.update import UpdateRule
from memo_tta.models.batch_norm import norm_layers

MOMENTUM = 0.9  # of the moving average of the loss
TINY = 1e-12  # added to the norm of the gradient


@dataclass(frozen=True, kw_only=True)
class SAROptions(ReliableOptions):
    """Tent's options, and those of sharpness-aware steps and of the recovery."""

    rho: float = option(
        0.05, Number("[0, inf)"), "length of the move uphill at whose end the gradient of a step is taken"
    )
    recover_below: float = option(
        0.2,
        Number("[0, inf)"),
        "return to the source model when the moving average of the loss falls below this",
        needs=[when("online", True)],
        off=0,
    )
    freeze: float = option(
        0.25,
        Number("[0, 1)"),
        "share of the norm layers, the last ones, that are not adapted; the paper leaves out the last stage "
        "of a ResNet, and the last 3 of 12 blocks of a ViT",
        needs=[when("params", "norm")],
        off=0,
    )


class SAR(ReliableSteps[SAROptions]):
    """Take sharpness-aware steps on the entropy of reliable points; start over if the loss collapses."""

    options_type = SAROptions

    def choose_parameters(self) -> list[Parameter]:
        chosen = super().choose_parameters()
        if self.options.params != "norm":
            return chosen
        layers = [list(layer.parameters(recurse=False)) for layer in norm_layers(self.classifier.module)]
        layers = [parameters for parameters in layers if parameters]
        frozen = layers[len(layers) - int(self.options.freeze * len(layers)) :]
        frozen_ids = {id(p) for parameters in frozen for p in parameters}
        return [p for p in chosen if id(p) not in frozen_ids]

    def weigh(self, batch: Batch, logits: Tensor, notes: float | None) -> Tensor:
        return self.reliable(logits).to(logits.dtype)

    def step(self, batch: Batch, rule: UpdateRule, notes: float | None) -> Step | None:
        forward = ForwardPass(self.classifier, batch.x, micro_batch=None)
        logits = forward.logits.detach()
        weights = self.weigh(batch, logits, notes)
        if not weights.any():
            return Step(logits, notes)
        gradients = forward.gradient(weighted_entropy(forward.logits, weights), self._parameters)
        with keeping_values(self._parameters):
            climb(self._parameters, gradients, self.options.rho)
            forward = ForwardPass(self.classifier, batch.x, micro_batch=None)
            weights = weights * self.weigh(batch, forward.logits.detach(), notes)
            if not weights.any() and forward.logits.isfinite().all():
                return Step(logits, notes)
            loss = weighted_entropy(forward.logits, weights)
            gradients = forward.gradient(loss, self._parameters)
        if not all_finite([loss, *gradients]):
            return None
        rule.step(self._parameters, gradients)
        value = float(loss.detach())
        return Step(logits, value if notes is None else MOMENTUM * notes + (1 - MOMENTUM) * value)

    def store(self, state: AdaptedState) -> None:
        if state.notes is not None and state.notes < self.options.recover_below:
            self._memory.forget()
        else:
            super().store(state)


def climb(parameters: Sequence[Parameter], gradients: Sequence[Tensor | None], distance: float) -> None:
    """Move the parameters this far along the gradient."""
    length = math.sqrt(sum(float(g.square().sum()) for g in gradients if g is not None))
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            parameter.data.add_(gradient * (distance / (length + TINY)))
