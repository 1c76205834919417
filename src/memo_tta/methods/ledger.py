"""What the methods did for one point: how long it took, and what need not be done twice."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, TypeVar

Value = TypeVar("Value")
Stage = Literal["views", "predict"]  # the rest of the time is the model's: forward, backward, update


@dataclass(frozen=True)
class Cost:
    """Seconds of one method at one point."""

    total: float
    views: float
    predict: float

    @property
    def model(self) -> float:
        return self.total - self.views - self.predict


class Ledger:
    """Shared by methods that look at the same point; what one did is charged to all that use it."""

    def __init__(self) -> None:
        self._done: dict[Hashable, tuple[Any, float]] = {}
        self._stages: dict[str, float] = {}
        self._borrowed, self._began = 0.0, perf_counter()

    def open(self) -> None:
        """A new method begins."""
        self._stages, self._borrowed, self._began = {}, 0.0, perf_counter()

    def close(self) -> Cost:
        """What the method cost, as if it had done everything itself."""
        total = perf_counter() - self._began + self._borrowed
        return Cost(total, self._stages.get("views", 0.0), self._stages.get("predict", 0.0))

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        finally:
            self._charge(name, perf_counter() - began)

    def once(self, key: Hashable, compute: Callable[[], Value], stage: Stage | None = None) -> Value:
        """The value of that key: computed, or kept from a method before."""
        if key in self._done:
            value, seconds = self._done[key]
            self._borrowed += seconds
        else:
            began = perf_counter()
            value = compute()
            seconds = perf_counter() - began
            self.keep(key, value, seconds)
        if stage is not None:
            self._charge(stage, seconds)
        return value

    def keep(self, key: Hashable, value: Any, seconds: float) -> None:
        """For methods that follow: a value that fell out of other work, and what it took."""
        self._done[key] = value, seconds

    def _charge(self, stage: Stage, seconds: float) -> None:
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds
