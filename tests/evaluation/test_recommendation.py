"""The rule that recommends a method, on results made for each case."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy.stats import binomtest

from memo_tta.evaluation.recommendation import MethodLimits, Recommendation, assess, images_needed, recommend
from memo_tta.evaluation.results import ResultBlock, collect
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.report.suggestion import doubts, sentence
from tests.runs import record

IMAGES = 100
Right = Mapping[str, Sequence[bool]]  # by method


def block(right: Right, seconds: Mapping[str, float], corruption: str = "") -> ResultBlock:
    records = [
        record(name, position, is_right, seconds=seconds.get(name, 0.01), corruption=corruption)
        for name, answers in right.items()
        for position, is_right in enumerate(answers)
    ]
    (found,) = collect(records)
    return found


def answers(wrong: int, images: int = IMAGES) -> list[bool]:
    """Return answers of which the first `wrong` are wrong."""
    return [position >= wrong for position in range(images)]


def choose(
    shifted: Mapping[str, int],
    clean: Mapping[str, int] | None = None,
    seconds: Mapping[str, float] | None = None,
    limits: MethodLimits | None = None,
    images: int = IMAGES,
) -> Recommendation:
    """Recommend from the numbers of wrong answers of each method."""
    blocks = [
        None
        if wrong is None
        else block({name: answers(count, images) for name, count in wrong.items()}, seconds or {}, corruption)
        for wrong, corruption in ((shifted, "fog"), (clean, ""))
    ]
    assert blocks[0] is not None
    return recommend(blocks[0], blocks[1], limits or MethodLimits())


CLEAN = {"source": 10, "tta": 10, "restore": 10, "memo": 10}
SHIFTED = {"source": 60, "tta": 50, "restore": 40, "memo": 45}


def test_the_best_method_without_harm_is_chosen():
    assert choose(SHIFTED, CLEAN).chosen.method == "restore"
    assert choose(SHIFTED).chosen.method == "restore"  # without clean images, harm is unknown


def test_harm_that_is_proven_rules_a_method_out():
    harmful = {**CLEAN, "restore": 16}
    assert choose(SHIFTED, harmful).chosen.method == "memo"
    assert choose(SHIFTED, harmful, limits=MethodLimits(harm=0.03)).chosen.method == "restore"
    assert choose({"source": 60, "restore": 40}, harmful).is_source


def test_harm_that_may_be_chance_weighs_as_much_as_gain():
    maybe = {**CLEAN, "restore": 15}  # five images: 4.5 points beyond the limit
    assert choose(SHIFTED, maybe).chosen.method == "restore"
    assert choose({**SHIFTED, "memo": 44}, maybe).chosen.method == "memo"
    outweighs = {"source": 300, "restore": 285}, {"source": 50, "restore": 73}
    assert choose(*outweighs, images=500).is_source


def test_a_faster_method_that_comes_close_is_preferred():
    times = {"source": 0.01, "tta": 0.02, "restore": 0.5, "memo": 0.1}
    close = {"source": 600, "tta": 500, "restore": 400, "memo": 405}
    assert choose(close, seconds=times, images=1000).chosen.method == "memo"  # 0.5 points worse
    assert choose({**close, "memo": 406}, seconds=times, images=1000).chosen.method == "restore"


def test_the_budget_excludes_what_takes_longer():
    times = {"source": 0.01, "tta": 0.02, "restore": 0.5, "memo": 0.1}
    assert choose(SHIFTED, seconds=times, limits=MethodLimits(seconds=0.1)).chosen.method == "memo"
    assert choose(SHIFTED, seconds=times, limits=MethodLimits(seconds=0.05)).chosen.method == "tta"
    assert choose(SHIFTED, seconds=times, limits=MethodLimits(seconds=0.015)).is_source


def test_the_time_that_counts_is_the_longer_of_clean_and_shifted_images():
    clean = block({name: answers(10) for name in ("source", "restore")}, {"restore": 0.9})
    shifted = block({"source": answers(60), "restore": answers(40)}, {"restore": 0.2}, "fog")
    assert assess("restore", shifted, clean).seconds == 0.9
    assert assess("restore", shifted, None).seconds == 0.2


def test_nothing_is_recommended_that_may_be_chance():
    maybe = choose({"source": 60, "restore": 56})  # four images: p = 0.125
    assert maybe.is_source and [rival.method for rival in maybe.rivals] == ["restore"]
    assert "cannot be told from so few images" in sentence(maybe)
    assert choose({"source": 60, "restore": 53}).chosen.method == "restore"
    nothing = choose({"source": 60, "restore": 61, "memo": 60})
    assert nothing.is_source and not nothing.rivals
    assert "nothing that was tried helps" in sentence(nothing)


def test_a_rival_that_more_images_could_prove_better_is_named():
    rng = np.random.default_rng(0)
    source = np.zeros(IMAGES, bool)
    restore, memo = source.copy(), source.copy()
    restore[rng.choice(IMAGES, 30, replace=False)] = True
    memo[rng.choice(IMAGES, 33, replace=False)] = True
    shifted = {
        name: right.tolist() for name, right in {"source": source, "restore": restore, "memo": memo}.items()
    }
    found = recommend(block(shifted, {}, "fog"), None, MethodLimits())
    assert found.chosen.method == "memo" and not found.rivals
    among = recommend(block(shifted, {}, "fog"), None, MethodLimits(), ["restore"])
    (rival,) = among.rivals
    assert among.chosen.method == "restore" and rival.method == "memo" and rival.images is not None
    (line,) = doubts(among, MethodLimits())
    assert line.startswith("memo may be better than restore") and f"{rival.images:,} images" in line


def test_harm_that_the_clean_images_do_not_exclude_is_told():
    found = choose(SHIFTED, CLEAN)
    assert not found.is_harm_excluded and found.harm_images is not None and found.harm_images > IMAGES
    assert any("is not excluded" in line for line in doubts(found, MethodLimits()))
    assert choose(SHIFTED, CLEAN, limits=MethodLimits(harm=0.06)).is_harm_excluded


@pytest.mark.parametrize("helped, hurt", [(0, 0), (0, 3), (5, 1), (40, 60)])
def test_the_interval_of_harm_is_newcombes(helped, hurt):
    source, method = answers(0), answers(0)
    for index in range(helped):
        source[index] = False
    for index in range(helped, helped + hurt):
        method[index] = False
    clean = block({"source": source, "restore": method}, {})
    shifted = block({"source": answers(50), "restore": answers(40)}, {}, "fog")
    harm = assess("restore", shifted, clean).harm
    assert harm is not None
    (h_low, h_high), (b_low, b_high) = (
        binomtest(count, IMAGES).proportion_ci(method="wilson") for count in (hurt, helped)
    )
    h, b = hurt / IMAGES, helped / IMAGES
    assert harm.low == pytest.approx(h - b - math.hypot(h - h_low, b_high - b))
    assert harm.high == pytest.approx(h - b + math.hypot(h_high - h, b - b_low))


@pytest.mark.parametrize(
    "difference, half_width, limit, expected",
    [
        (-0.02, 0.04, 0.0, 400),
        (0.0, 0.05, 0.005, 10_000),
        (-0.03, 0.0501, 0.0, 280),
        (0.005, 0.01, 0.005, None),
    ],
)
def test_the_width_of_an_interval_falls_with_the_square_root(difference, half_width, limit, expected):
    change = PairedComparison(100, difference, difference - half_width, difference + half_width, 0.5, 3, 1)
    assert images_needed(100, change, limit) == expected


def test_the_sentence_has_gain_harm_and_cost():
    found = choose(SHIFTED, {**CLEAN, "restore": 11}, {"source": 0.012, "restore": 0.031})
    text = sentence(found)
    assert text.startswith("Use restore: on shifted images 20.0 points fewer errors (")
    assert "on clean ones 1.0 more (" in text and text.endswith("31 ms instead of 12.")
    assert "as many (−" in sentence(choose(SHIFTED, CLEAN))
