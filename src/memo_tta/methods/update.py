"""Update rules G(θ, η, gradient), written out for tensors that are updated in place.

They follow torch.optim's SGD, Adam and AdamW. A rule object holds the moments of one run of steps;
a new point gets a new one.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from memo_tta.registry import Registry

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class UpdateRule(ABC):
    """One step per call of `step`; a gradient of None leaves its tensor alone."""

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0):
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.steps = 0
        self.moments: dict[int, tuple[Tensor, ...]] = {}

    def copy(self) -> "UpdateRule":
        """A rule in the same state that can go on without touching this one."""
        twin = type(self)(self.lr, self.momentum, self.weight_decay)
        twin.steps = self.steps
        twin.moments = {i: tuple(m.clone() for m in moments) for i, moments in self.moments.items()}
        return twin

    @torch.no_grad()
    def step(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        self.steps += 1
        for index, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
            if gradient is not None:
                self._update(index, tensor.data, gradient)

    @abstractmethod
    def _update(self, index: int, tensor: Tensor, gradient: Tensor) -> None: ...


class SGD(UpdateRule):
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
    def _update(self, index: int, tensor: Tensor, gradient: Tensor) -> None:
        tensor.mul_(1 - self.lr * self.weight_decay)
        self._descend(index, tensor, gradient)


UPDATE_RULES = Registry[type[UpdateRule]]("optimizer", {"sgd": SGD, "adam": Adam, "adamw": AdamW})
