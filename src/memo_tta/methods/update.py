"""Update rules G(θ, η, gradient) that change tensors in place, and their options.

They compute the same as torch.optim's SGD, Adam and AdamW. A rule object holds the moments of one series of
steps; each point gets a new one.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memo_tta.methods.bn import BatchNormOptions
from memo_tta.methods.options import Condition, Described, Number, OneOf, Options, option, when, with_default
from memo_tta.methods.parameters import ParameterChoice
from memo_tta.registry import Registry

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class UpdateRule(ABC):
    """An optimizer for a fixed list of tensors."""

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0):
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.steps = 0
        self.moments: dict[int, tuple[Tensor, ...]] = {}

    def copy(self) -> "UpdateRule":
        """Return an independent rule with the same state."""
        duplicate = type(self)(self.lr, self.momentum, self.weight_decay)
        duplicate.steps = self.steps
        duplicate.moments = {i: tuple(m.clone() for m in moments) for i, moments in self.moments.items()}
        return duplicate

    @torch.no_grad()
    def step(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Update the tensors in place by one step; a tensor whose gradient is None stays unchanged."""
        self.steps += 1
        for index, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
            if gradient is not None:
                self._update(index, tensor.data, gradient)

    @abstractmethod
    def _update(self, index: int, tensor: Tensor, gradient: Tensor) -> None:
        """Update one tensor; `index` is its position, the key of its moments."""


class SGD(UpdateRule):
    """Stochastic gradient descent, with momentum and weight decay."""

    def _update(self, index: int, tensor: Tensor, gradient: Tensor) -> None:
        if self.weight_decay:
            gradient = gradient.add(tensor, alpha=self.weight_decay)
        if self.momentum:
            if index in self.moments:
                gradient = self.moments[index][0].mul_(self.momentum).add_(gradient)
            else:
                self.moments[index] = (gradient.clone(),)
        tensor.add_(gradient, alpha=-self.lr)


class Adam(UpdateRule):
    """Adam, whose weight decay is added to the gradient."""

    def _update(self, index: int, tensor: Tensor, gradient: Tensor) -> None:
        if self.weight_decay:
            gradient = gradient.add(tensor, alpha=self.weight_decay)
        self._descend(index, tensor, gradient)

    def _descend(self, index: int, tensor: Tensor, gradient: Tensor) -> None:
        if index not in self.moments:
            self.moments[index] = (torch.zeros_like(tensor), torch.zeros_like(tensor))
        mean, square = self.moments[index]
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        scale = (square / (1 - BETA2**self.steps)).sqrt_().add_(EPS)
        tensor.addcdiv_(mean, scale, value=-self.lr / (1 - BETA1**self.steps))


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    def _update(self, index: int, tensor: Tensor, gradient: Tensor) -> None:
        tensor.mul_(1 - self.lr * self.weight_decay)
        self._descend(index, tensor, gradient)


UPDATE_RULES = Registry[type[UpdateRule]]("optimizer", {"sgd": SGD, "adam": Adam, "adamw": AdamW})


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(Options):
    """How weights are adapted: update rule, number of steps, parameters and batch-norm statistics."""

    optimizer: str = option("sgd", OneOf("optimizer", UPDATE_RULES), "update rule of the gradient steps")
    lr: float = option(2.5e-4, Number("(0, inf)"), "learning rate")
    momentum: float = option(
        0.0,
        Number("[0, 1)"),
        "momentum of SGD; takes effect from the second step on",
        needs=[
            when("optimizer", "sgd"),
            (
                Condition("steps", "steps=2", lambda given: given > 1),
                when("carry_optimizer", True),
                when("online", True),
            ),
        ],
        off=0,
    )
    weight_decay: float = option(0.0, Number("[0, inf)"), "weight decay")
    steps: int = option(
        1,
        Number("[1, inf)", whole=True, hint="the method tta averages views without a step"),
        "number of gradient steps; methods that draw views draw new ones for every step",
    )
    params: ParameterChoice = option(
        "all",
        Described(
            "'all', 'trainable', 'norm', 'head', 'last:K', a regular expression or a predicate",
            lambda value: isinstance(value, str) or callable(value),
        ),
        "parameters to adapt; trainable means those with requires_grad, as of adapters beside a frozen "
        "network; last:K means the last K blocks, head included, or all if there are fewer; a regular "
        "expression is searched in their names, a predicate takes (name, parameter)",
    )
    prior_strength: float | None = with_default(BatchNormOptions, "prior_strength", 16, can_be_none=True)

    def update_rule(self) -> UpdateRule:
        """Return a new rule, without moments."""
        return UPDATE_RULES[self.optimizer](self.lr, self.momentum, self.weight_decay)
