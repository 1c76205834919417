"""Adaptation that stops at a deadline or on cancellation, in the middle of a forward or backward pass."""

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from functools import partial
from math import inf
from threading import Lock
from time import perf_counter
from typing import Any

from torch import Tensor, nn

from memo_tta.durations import RecentDurations

KEPT = 5  # durations of each kind of adaptation
MARGIN = 1.1  # on the typical duration, for an adaptation that takes longer
STALE = 5.0  # seconds after which a duration says nothing about the next one
CHECKS_PER_PASS = 8  # each needs Python's lock, which the backward pass of another replica does without

IsCancelled = Callable[[], bool]


class DeadlineExceeded(Exception):
    """The deadline passed while the module was working."""


class Cancelled(Exception):
    """The result is no longer needed: the client disconnected, or the service is shutting down."""


class DeadlineHooks:
    """Hooks on some of a module's layers that stop its work at a deadline or on cancellation.

    The episode around that work restores the weights, as after any exception. Work outside the layers,
    such as making views, is not interrupted.
    """

    def __init__(self, module: nn.Module):
        self._deadline, self._is_cancelled = inf, never_cancelled
        layers = [layer for layer in module.modules() if not any(True for _ in layer.children())]
        for layer in layers[:: max(1, len(layers) // CHECKS_PER_PASS)]:
            layer.register_forward_pre_hook(self._before_forward)
            layer.register_forward_hook(self._after_forward)

    @contextmanager
    def enforce(self, deadline: float, is_cancelled: IsCancelled) -> Generator[None]:
        """Raise DeadlineExceeded or Cancelled from layers in the block; `deadline` is a perf_counter time."""
        self._deadline, self._is_cancelled = deadline, is_cancelled
        try:
            self._check()
            yield
        finally:
            self._deadline, self._is_cancelled = inf, never_cancelled

    def _check(self, *_: Any) -> None:
        if self._is_cancelled():
            raise Cancelled
        if perf_counter() > self._deadline:
            raise DeadlineExceeded

    def _before_forward(self, _layer: nn.Module, _inputs: Any) -> None:
        self._check()

    def _after_forward(self, _layer: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(self._check)  # pyright: ignore[reportUnknownMemberType]: torch has no types


def never_cancelled() -> bool:
    return False


class AdaptationTimes:
    """Recent durations of each kind of adaptation, shared by all replicas."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._durations = defaultdict[Hashable, RecentDurations](partial(RecentDurations, KEPT))
        self._measured_at: dict[Hashable, float] = {}  # perf_counter times

    def fits(self, kind: Hashable, seconds: float) -> bool:
        """Return whether this kind of adaptation is expected to finish within `seconds`.

        A kind that was not measured recently may start, so that one slow period does not disable it for good.
        """
        with self._lock:
            if perf_counter() - self._measured_at.get(kind, -inf) > STALE:
                return seconds > 0
            typical = self._durations[kind].typical
        return typical is None or MARGIN * typical <= seconds

    def add(self, kind: Hashable, seconds: float) -> None:
        """Record one adaptation."""
        with self._lock:
            self._durations[kind].add(seconds)
            self._measured_at[kind] = perf_counter()
