"""Weights that live on from point to point, and what keeps them from collapsing onto one label."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from memo_tta.methods.gradient import all_finite

MEMORY = 0.99  # of the running shares: they look back about 100 points
COLLAPSED = 0.15  # so much more often than the source says it may no label be said


class Carried:
    """Values of parameters between calls, in which the module has its own ones back.

    `pull` is how far they go back toward those of the module after each call.
    """

    def __init__(self, parameters: Sequence[Parameter], pull: float = 0.0):
        self.pull = pull
        self._parameters = parameters
        self.forget()

    def forget(self) -> None:
        self._values: list[Tensor] | None = None  # those of the module, until some are kept

    @torch.no_grad()
    def put(self) -> None:
        """Into the module, within an episode; it still has its own values."""
        self._source = [p.detach().clone() for p in self._parameters] if self.pull else []
        for parameter, value in zip(self._parameters, self._values or (), strict=bool(self._values)):
            parameter.data.copy_(value)

    def taken(self) -> list[Tensor] | None:
        """What to keep of the module's present values, within the same episode; None if not finite."""
        values = [p.detach().clone() for p in self._parameters]
        for value, source in zip(values, self._source, strict=bool(self._source)):
            value.lerp_(source, self.pull)
        return values if all_finite(values) else None

    def keep(self, values: list[Tensor]) -> None:
        self._values = values


class Collapse:
    """Tells from a stream of answers that the adapted model says one label far more than the source.

    A stream that really is of one label is none: the source says it as often.
    """

    def __init__(self) -> None:
        self._surplus: Tensor | None = None  # running share of each label, less that of the source

    def seen(self, logits: Tensor, source: Tensor) -> bool:
        """After the answers to one point, [K] each."""
        if self._surplus is None:
            self._surplus = torch.zeros_like(source)
        self._surplus *= MEMORY
        self._surplus[logits.argmax()] += 1 - MEMORY
        self._surplus[source.argmax()] -= 1 - MEMORY
        return bool(self._surplus.max() > COLLAPSED)
