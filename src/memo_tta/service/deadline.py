"""Adaptation that can be called off: layers look at the clock, forward and backward."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from statistics import median
from time import perf_counter
from typing import Any

from torch import Tensor, nn

KEPT, MARGIN = 5, 1.1  # durations of each kind; room for one that takes longer
STALE = 5.0  # seconds
LOOKS = 8  # per pass: each needs Python's lock, which the backward pass of another replica does without


class DeadlineExceeded(Exception):
    """The deadline passed."""


class Cancelled(Exception):
    """Nobody waits for the answer any more."""


class DeadlineHooks:
    """Hooks on some of a module's layers that end its work between two layers.

    The episode around that work puts the weights back, as after any exception. Work outside the layers,
    such as making views, is not cut short.
    """

    def __init__(self, module: nn.Module):
        self._until, self._is_wanted = inf, _always
        layers = [layer for layer in module.modules() if not any(True for _ in layer.children())]
        for layer in layers[:: max(1, len(layers) // LOOKS)]:
            layer.register_forward_pre_hook(self._before)
            layer.register_forward_hook(self._after)

    @contextmanager
    def over(self, until: float, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """Within the block, work ends with DeadlineExceeded or Cancelled; `until` is a perf_counter time."""
        self._until, self._is_wanted = until, is_wanted
        try:
            self.look()
            yield
        finally:
            self._until, self._is_wanted = inf, _always

    def look(self, *_: Any) -> None:
        if not self._is_wanted():
            raise Cancelled
        if perf_counter() > self._until:
            raise DeadlineExceeded

    def _before(self, _layer: nn.Module, _inputs: Any) -> None:
        self.look()

    def _after(self, _layer: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(self.look)


def _always() -> bool:
    return True


class Costs:
    """How long adaptation took of late, so that none begins that cannot end in time."""

    def __init__(self) -> None:
        self._recent: dict[object, tuple[float, ...]] = {}
        self._measured: dict[object, float] = {}

    def fits(self, kind: object, seconds: float) -> bool:
        """Whether that kind of adaptation should end within so many seconds.

        What was not measured for a while may try: a slow hour must not be held against it for ever.
        """
        if perf_counter() - self._measured.get(kind, -inf) > STALE:
            return seconds > 0
        return MARGIN * median(self._recent[kind]) <= seconds

    def took(self, kind: object, seconds: float) -> None:
        self._recent[kind] = (*self._recent.get(kind, ())[1 - KEPT :], seconds)
        self._measured[kind] = perf_counter()
