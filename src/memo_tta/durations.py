"""An estimate of how long the next repetition of some work takes, from the last few."""

from collections import deque
from statistics import median

KEPT = 20  # repetitions that the estimate looks back on


class RecentDurations:
    """Seconds of the last repetitions; one that was exceptionally slow or fast does not count."""

    def __init__(self, kept: int = KEPT):
        self._seconds: deque[float] = deque(maxlen=kept)

    def add(self, seconds: float) -> None:
        """Record one repetition."""
        self._seconds.append(seconds)

    @property
    def typical(self) -> float | None:
        """The median, or None before the first repetition."""
        return median(self._seconds) if self._seconds else None
