"""Points that a method helped or hurt, against a count by hand."""

import pytest

from memo_tta.evaluation.changed_points import changed_points, most_changed_points
from memo_tta.evaluation.results import collect
from tests.runs import record


def test_the_most_changed_points():
    outcomes = {  # position: (right before, score), (right after, score), gain at least
        0: ((False, 0.9), (True, 0.8), 0.7),
        1: ((False, 0.4), (True, 0.8), 0.4),
        2: ((False, 0.9), (True, 0.95), 0.85),
        3: ((True, 0.7), (False, 0.6), -0.3),
        4: ((True, 0.9), (True, 0.99), None),
        5: ((False, 0.9), (False, 0.99), None),
    }
    records = []
    for position, (before, after, _) in outcomes.items():
        records.append(record("source", position, before[0], score=before[1]))
        records.append(record("memo", position, after[0], score=after[1]))
    helped, hurt = most_changed_points(collect(records)[0], "memo", "source", 2)
    assert [(point.position, pytest.approx(point.gain)) for point in helped] == [(2, 0.85), (0, 0.7)]
    assert [(point.position, pytest.approx(point.gain)) for point in hurt] == [(3, -0.3)]
    assert helped[0].target == 2 and helped[0].shift == ("", 0)
    in_order, _ = changed_points(collect(records)[0], "memo", "source")
    assert [point.position for point in in_order] == [0, 1, 2]
