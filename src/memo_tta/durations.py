"""Estimate how long the next repetition of some work takes from the last few."""

from collections import deque
from statistics import median

KEPT = 20  # repetitions that the estimate is made from


class RecentDurations:
    """Durations of the last repetitions in seconds, summarised by a median that ignores outliers."""

    def __init__(self, kept: int = KEPT):
        self._seconds: deque[float] = deque(maxlen=kept)

    def add(self, seconds: float) -> None:
        """Record the duration of one repetition."""
        self._seconds.append(seconds)

    @property
    def typical(self) -> float | None:
        """The median duration, or None before the first repetition."""
        return median(self._seconds) if self._seconds else None
