"""Places for the labels of dots in a plot, such that they cover neither each other nor the dots."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

DISTANCES = (5, 12, 20, 30, 42, 56)  # between a dot and its label, in the plot's unit
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
OUTSIDE = 10  # times as bad as the same area over something else


class Box(NamedTuple):
    """A rectangle, its sides parallel to the axes."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def area(self) -> float:
        return max(0.0, self.right - self.left) * max(0.0, self.top - self.bottom)

    def shared(self, other: "Box") -> "Box":
        """Return the part that both cover, of no area if there is none."""
        return Box(
            max(self.left, other.left),
            max(self.bottom, other.bottom),
            min(self.right, other.right),
            min(self.top, other.top),
        )


def place_labels(
    dots: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    obstacles: Sequence[Box],
    bounds: Box,
) -> list[Box]:
    """Return a place for the label of each dot, of its (width, height): the nearest that covers the least."""
    placed: list[Box] = []
    for dot, size in zip(dots, sizes, strict=True):
        taken = [*obstacles, *placed]
        placed.append(min(_places(dot, size), key=lambda place: _covered(place, taken, bounds)))
    return placed


def _places(dot: tuple[float, float], size: tuple[float, float]) -> Iterator[Box]:
    """Yield the possible places, the nearest first."""
    (x, y), (width, height) = dot, size
    for distance in DISTANCES:
        for right, up in DIRECTIONS:
            left = x + right * (distance + width / 2) - width / 2
            bottom = y + up * (distance + height / 2) - height / 2
            yield Box(left, bottom, left + width, bottom + height)


def _covered(place: Box, taken: Sequence[Box], bounds: Box) -> float:
    outside = place.area - place.shared(bounds).area
    return OUTSIDE * outside + sum(place.shared(each).area for each in taken)
