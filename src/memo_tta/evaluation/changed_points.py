"""Points whose prediction a method corrects or breaks, compared with a baseline."""

from typing import NamedTuple

import numpy as np

from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.evaluation.comparison import shared_results
from memo_tta.evaluation.results import PointResults, ResultBlock


class ChangedPoint(NamedTuple):
    """A point that exactly one of two methods gets right."""

    shift: CorruptionLevel
    position: int
    target: int
    gain: float  # lower bound on the change of the target's probability; negative where the point was hurt


def changed_points(
    block: ResultBlock, method: str, baseline: str
) -> tuple[list[ChangedPoint], list[ChangedPoint]]:
    """Return the points that the method helped and those that it hurt, in the order of the data.

    A correct prediction's score is the target's probability. A wrong one's score s only bounds it: by s,
    and by the 1 - s that is left.
    """
    helped: list[ChangedPoint] = []
    hurt: list[ChangedPoint] = []
    for shift, after, before in shared_results(block, method, baseline):
        gain = _target_probability(after) - _target_probability(before)
        for changed, points in ((before.wrong & ~after.wrong, helped), (after.wrong & ~before.wrong, hurt)):
            points += [
                ChangedPoint(shift, int(after.position[i]), int(after.target[i]), float(gain[i]))
                for i in np.flatnonzero(changed)
            ]
    return helped, hurt


def most_changed_points(
    block: ResultBlock, method: str, baseline: str, count: int
) -> tuple[list[ChangedPoint], list[ChangedPoint]]:
    """Return the `count` points that the method helped most and those that it hurt most."""
    helped, hurt = changed_points(block, method, baseline)
    helped.sort(key=lambda point: -point.gain)
    hurt.sort(key=lambda point: point.gain)
    return helped[:count], hurt[:count]


def _target_probability(results: PointResults) -> np.ndarray:
    """Return the target's probability where the prediction is right, else an upper bound on it."""
    score = results.score
    return np.where(results.wrong, np.minimum(score, 1 - score), score)
