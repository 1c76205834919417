"""Probabilities, scores and labels of a prediction."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy

from memo_tta.methods import Prediction, Status

logits = st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=9)


@given(logits)
def test_numbers_agree_with_scipy(values):
    p, expected = Prediction(torch.tensor(values)), softmax(values)
    assert p.probabilities.tolist() == pytest.approx(expected.tolist(), abs=1e-9)
    assert p.score == pytest.approx(expected.max(), abs=1e-9)
    assert p.entropy == pytest.approx(entropy(expected), abs=1e-6)
    assert values[p.index] == max(values)


def test_top_descends_and_names_the_classes():
    p = Prediction(torch.tensor([0.0, 2.0, 1.0]), labels=("cat", "dog", "eel"))
    assert [row["label"] for row in p.top(2)] == ["dog", "eel"]
    assert p.top(9)[0] == {"label": "dog", "score": p.score} and len(p.top(9)) == 3
    assert p.label == "dog" and Prediction(torch.tensor([0.0, 2.0])).label == "1"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.nan, 1.0, 1.0], [0, 0.5, 0.5]),
        ([math.nan, math.nan], [0.5, 0.5]),
        ([math.inf, 1.0], [1, 0]),
        ([-math.inf, 1.0], [0, 1]),
    ],
)
def test_probabilities_are_never_nan(values, expected):
    p = Prediction(torch.tensor(values))
    assert p.probabilities.tolist() == expected
    assert p.entropy == pytest.approx(entropy(expected), abs=1e-9)


def test_source_of_a_source_prediction_is_itself():
    before = Prediction(torch.tensor([1.0, 0.0]), ("a", "b"))
    after = Prediction(torch.tensor([0.0, 1.0]), ("a", "b"), Status.ADAPTED, before=before)
    assert after.source is before and before.source is before
    assert repr(after) == "Prediction('b', score 0.731, adapted, before 'a' 0.731)"
