"""The plot of error against time, and where its labels stand."""

import re
from itertools import combinations

import numpy as np
import pytest

from memo_tta.methods import METHODS
from memo_tta.report.error_and_time_plot import APART, ErrorRate, PlottedMethod, _spread, error_and_time_plot
from memo_tta.report.label_placement import Box, place_labels

BOUNDS = Box(0, 0, 500, 200)


def rate(error):
    return ErrorRate(error, error - 0.02, error + 0.02)


def texts(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.decode())


def test_every_method_is_in_both_panels():
    rows = [
        PlottedMethod(name, 0.002 * (1 + index % 5), rate(0.1), rate(0.3))
        for index, name in enumerate(METHODS)
    ]
    found = texts(error_and_time_plot(rows))
    assert {name: found.count(name) for name in METHODS} == dict.fromkeys(METHODS, 2)
    assert "shifted images" in found and "clean images" in found and "milliseconds per image, median" in found
    assert error_and_time_plot(rows) == error_and_time_plot(rows)


def test_a_method_without_results_is_only_in_the_other_panel():
    rows = [
        PlottedMethod("source", 0.002, rate(0.1), rate(0.3)),
        PlottedMethod("memo", 0.1, None, rate(0.25)),
    ]
    found = texts(error_and_time_plot(rows))
    assert (found.count("source"), found.count("memo")) == (2, 1)
    alone = texts(error_and_time_plot([PlottedMethod("memo", 0.1, rate(0.1), None)], ("", "photos")))
    assert "photos" in alone and "" not in alone and "shifted images" not in alone


def test_a_time_of_zero_and_an_error_without_an_interval_can_be_drawn():
    assert "source" in texts(error_and_time_plot([PlottedMethod("source", 0.0, ErrorRate(0, 0, 0), None)]))


@pytest.mark.parametrize("seed", range(5))
def test_labels_cover_neither_each_other_nor_dots(seed):
    rng = np.random.default_rng(seed)
    dots = [
        (float(x), float(y)) for x, y in zip(rng.uniform(50, 400, 14), rng.uniform(60, 140, 14), strict=True)
    ]
    obstacles = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in dots]
    places = place_labels(dots, [(45.0, 9.0)] * 14, obstacles, BOUNDS)
    assert all(one.shared(other).area == 0 for one, other in combinations(places, 2))
    assert all(place.shared(dot).area == 0 for place in places for dot in obstacles)
    assert all(place.shared(BOUNDS).area == pytest.approx(place.area) for place in places)


def test_a_label_stands_next_to_a_dot_that_is_alone():
    (place,) = place_labels([(100, 100)], [(40, 10)], [], BOUNDS)
    assert place.left == 105 and (place.bottom + place.top) / 2 == 100
    (place,) = place_labels([(480, 100)], [(40, 10)], [], BOUNDS)  # no space on the right
    assert place.right == 475


def test_dots_of_one_time_stand_side_by_side():
    moved = _spread({"a": 100.0, "b": 100.0, "c": 103.0, "d": 300.0})
    assert moved["d"] == 300 and moved["b"] - moved["a"] == moved["c"] - moved["b"] == APART
    assert (moved["a"] + moved["b"] + moved["c"]) / 3 == pytest.approx(101)
