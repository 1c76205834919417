"""Work that methods share at one point, and what each of them would cost alone."""

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
    predict: float  # predicting after adaptation

    @property
    def model(self) -> float:
        """Seconds of forward and backward passes and the update."""
        return self.total - self.source - self.views - self.predict


class SharedWork:
    """Computes what several methods need at the same point once, and charges it to each of them.

    A method is charged for everything that it would compute alone, and for each piece once.
    """

    def __init__(self) -> None:
        self._results: dict[Hashable, tuple[Any, float]] = {}
        self.start_method()

    def start_method(self) -> None:
        """Start to measure the next method."""
        self._stages: dict[str, float] = {}
        self._charged: set[Hashable] = set()
        self._reused, self._began = 0.0, perf_counter()

    def cost(self) -> Cost:
        """Return what the present method costs, as if it had computed everything itself."""
        total = perf_counter() - self._began + self._reused
        return Cost(total, *(self._stages.get(stage, 0.0) for stage in ("source", "views", "predict")))

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Charge the time of the block to a stage."""
        began = perf_counter()
        try:
            yield
        finally:
            self._charge(name, perf_counter() - began)

    def once(self, key: Hashable, compute: Callable[[], Value], stage: Stage | None = None) -> Value:
        """Return compute(), or its result from an earlier call with the same key."""
        is_known = key in self._results
        if not is_known:
            began = perf_counter()
            value = compute()
            self._results[key] = value, perf_counter() - began
        value, seconds = self._results[key]
        if key not in self._charged:
            self._charged.add(key)
            self._reused += seconds if is_known else 0.0
            if stage is not None:
                self._charge(stage, seconds)
        return value

    def _charge(self, stage: Stage, seconds: float) -> None:
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds
