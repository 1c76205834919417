"""Work that several methods share for one point, and the time that each method would take alone."""

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, TypeVar

Value = TypeVar("Value")
Stage = Literal["source", "views", "predict"]  # the remaining time is forward, backward and update


@dataclass(frozen=True)
class Cost:
    """Seconds that one method takes for one point."""

    total: float
    source: float  # prediction before adaptation
    views: float  # making the views
    predict: float  # prediction after adaptation

    @property
    def model(self) -> float:
        """Seconds for forward passes, backward passes and updates."""
        return self.total - self.source - self.views - self.predict


class SharedWork:
    """A cache of results that several methods need for the same point, and a clock for each method.

    A method is charged for everything that it would compute alone, once per result.
    """

    def __init__(self) -> None:
        self._results: dict[Hashable, tuple[Any, float]] = {}
        self.start_method()

    def start_method(self) -> None:
        """Start measuring the next method."""
        self._stages: dict[str, float] = {}
        self._charged: set[Hashable] = set()
        self._reused, self._began = 0.0, perf_counter()

    def cost(self) -> Cost:
        """Return the cost of the current method, as if it had computed everything itself."""
        total = perf_counter() - self._began + self._reused
        return Cost(total, *(self._stages.get(stage, 0.0) for stage in ("source", "views", "predict")))

    @contextmanager
    def stage(self, name: Stage) -> Generator[None]:
        """Charge the time of the block to a stage."""
        began = perf_counter()
        try:
            yield
        finally:
            self._charge(name, perf_counter() - began)

    def once(self, key: Hashable, compute: Callable[[], Value], stage: Stage | None = None) -> Value:
        """Return compute(), or its result from an earlier call with the same key."""
        is_cached = key in self._results
        if not is_cached:
            began = perf_counter()
            value = compute()
            self._results[key] = value, perf_counter() - began
        value, seconds = self._results[key]
        if key not in self._charged:
            self._charged.add(key)
            self._reused += seconds if is_cached else 0.0
            if stage is not None:
                self._charge(stage, seconds)
        return value

    def _charge(self, stage: Stage, seconds: float) -> None:
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds
