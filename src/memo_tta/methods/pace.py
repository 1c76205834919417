"""How many views fit into a time."""

from collections import deque
from statistics import median

FIRST_VIEWS = 4
REMEMBERED = 5


class Pace:
    """How many views a point may have to take so many seconds, learnt from the points before.

    What a point costs besides its views is counted with them, so that the number settles where
    the whole takes the time given.
    """

    def __init__(self, seconds: float, most: int):
        self._seconds, self._most = seconds, most
        self._rates: deque[float] = deque(maxlen=REMEMBERED)  # a median forgives a slow first point

    @property
    def views(self) -> int:
        if not self._rates:
            return min(FIRST_VIEWS, self._most)
        return max(1, min(self._most, int(self._seconds / median(self._rates))))

    def learn(self, views: int, seconds: float) -> None:
        self._rates.append(seconds / views)
