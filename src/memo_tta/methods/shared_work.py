"""Work that several methods share for one point, and the time that each method would take alone."""

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
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

    def cost(self, points: int = 1) -> Cost:
        """Return the cost of the current method, as if it had computed everything itself.

        The time since the method started is shared equally by the points that it takes together.
        """
        total = (perf_counter() - self._began) / points + self._reused
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
        (value,) = SharedWork.once_together([self], key, lambda: [compute()], stage)
        return value

    @staticmethod
    def once_together(
        works: "Sequence[SharedWork]",
        key: Hashable,
        compute: Callable[[], Sequence[Value]],
        stage: Stage | None = None,
    ) -> list[Value]:
        """Return a result for each point: those stored under the key, or else compute(), with equal costs."""
        is_reused = all(key in work._results for work in works)
        if not is_reused:
            began = perf_counter()
            values = compute()
            seconds = (perf_counter() - began) / len(works)
            for work, value in zip(works, values, strict=True):
                work._results[key] = value, seconds
        return [work._use(key, stage, is_reused) for work in works]

    def _use(self, key: Hashable, stage: Stage | None, is_reused: bool) -> Any:
        """Return a stored result and charge the method for it, once."""
        value, seconds = self._results[key]
        if key not in self._charged:
            self._charged.add(key)
            self._reused += seconds if is_reused else 0.0
            if stage is not None:
                self._charge(stage, seconds)
        return value

    def _charge(self, stage: Stage, seconds: float) -> None:
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds


def mean_cost(works: Sequence[SharedWork]) -> Cost:
    """Return the cost of the current method for each of the points that it takes together."""
    costs = [astuple(work.cost(len(works))) for work in works]
    return Cost(*(sum(column) / len(costs) for column in zip(*costs, strict=True)))
