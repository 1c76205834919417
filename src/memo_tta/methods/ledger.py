"""What the methods did for one point: how long it took, and what need not be done twice."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, TypeVar

Value = TypeVar("Value")
Stage = Literal["source", "views", "predict"]  # the rest of the time is forward, backward and update


@dataclass(frozen=True)
class Cost:
    """Seconds of one method at one point."""

    total: float
    source: float  # predicting before adaptation
    views: float
    predict: float  # predicting after it

    @property
    def model(self) -> float:
        return self.total - self.source - self.views - self.predict


class Ledger:
    """Shared by methods that look at the same point.

    A method is charged for all that it would have done alone, and for each piece of it once.
    """

    def __init__(self) -> None:
        self._done: dict[Hashable, tuple[Any, float]] = {}
        self.open()

    def open(self) -> None:
        """Begin the account of a new method."""
        self._stages: dict[str, float] = {}
        self._charged: set[Hashable] = set()
        self._borrowed, self._began = 0.0, perf_counter()

    def close(self) -> Cost:
        """What the method cost, as if it had done everything itself."""
        total = perf_counter() - self._began + self._borrowed
        return Cost(total, *(self._stages.get(stage, 0.0) for stage in ("source", "views", "predict")))

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        finally:
            self._charge(name, perf_counter() - began)

    def once(self, key: Hashable, compute: Callable[[], Value], stage: Stage | None = None) -> Value:
        """The value of that key: computed, or kept from before."""
        is_kept = key in self._done
        if not is_kept:
            began = perf_counter()
            value = compute()
            self._done[key] = value, perf_counter() - began
        value, seconds = self._done[key]
        if key not in self._charged:
            self._charged.add(key)
            self._borrowed += seconds if is_kept else 0.0
            if stage is not None:
                self._charge(stage, seconds)
        return value

    def _charge(self, stage: Stage, seconds: float) -> None:
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds
