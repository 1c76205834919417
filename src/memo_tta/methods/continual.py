"""Weights that live on from point to point, and what keeps them from collapsing onto one label."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from memo_tta.methods.gradient import all_finite

LASTING = 0.1  # share of an anchored step that lives on
SURE = 0.4  # share of log K that the marginal entropy of a point may have to teach the next ones
MEMORY = 0.99  # of the running shares: they look back about 100 points
COLLAPSED = 0.15  # so much more often than the source says it may no label be said


class Carried:
    """Values of parameters between calls, in which the module has its own ones back."""

    def __init__(self, parameters: Sequence[Parameter]):
        self._parameters = parameters
        self.forget()

    def forget(self) -> None:
        self._values: list[Tensor] | None = None  # those of the module, until some are kept

    def put(self) -> None:
        """Into the module, within an episode."""
        if self._values is not None:
            for parameter, value in zip(self._parameters, self._values, strict=True):
                parameter.data.copy_(value)

    def taken(self) -> list[Tensor] | None:
        """What could be kept of the module's values now, within the same episode; None if not finite."""
        values = [p.detach().clone() for p in self._parameters]
        return values if all_finite(values) else None

    def keep(self, values: list[Tensor]) -> None:
        self._values = values

    def learn(self, values: list[Tensor], logits: Tensor, source: Tensor, marginal: float | None) -> None:
        """Keep values that came with these logits [K] and this entropy of the marginal."""
        self.keep(values)


class Anchored(Carried):
    """The same, but slowly, tied to the module's own values, and only as long as labels do not collapse.

    Of every step a tenth lives on, and after it values go back to the source by the share `pull`.
    """

    def __init__(self, parameters: Sequence[Parameter], pull: float):
        super().__init__(parameters)
        self._pull = pull

    def forget(self) -> None:
        super().forget()
        self._collapse = Collapse()

    def put(self) -> None:
        self._source = [p.detach().clone() for p in self._parameters]
        super().put()

    def taken(self) -> list[Tensor] | None:
        adapted = super().taken()
        if adapted is None:
            return None
        before = self._source if self._values is None else self._values
        return [
            old.lerp(new, LASTING).lerp(source, self._pull)
            for old, new, source in zip(before, adapted, self._source, strict=True)
        ]

    def learn(self, values: list[Tensor], logits: Tensor, source: Tensor, marginal: float | None) -> None:
        """Only from points that are sure, and nothing of all before if labels collapse."""
        if self._collapse.seen(logits, source):
            self.forget()
        elif marginal is not None and marginal < SURE * math.log(len(logits)):
            self.keep(values)


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
