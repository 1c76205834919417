"""Functions as classifiers: the methods that adapt nothing work, the others say which ones do."""

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

import memo_tta as mt
from memo_tta.errors import ConfigError, MemoError, MemoWarning, ModelError, UnknownName
from memo_tta.methods import METHODS
from memo_tta.models.forward_only import FunctionModule
from tests.nets import build_classifier, pictures

WORK = ("source", "tta", "restore", "zero")
SETTINGS: Any = {"size": 8, "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.25)}


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(0).standard_normal((5, 192)).astype(np.float32)


@pytest.fixture
def linear(weights):
    """A function of numpy alone, and the same as a module."""
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 5, bias=False))
    module[1].weight.data = torch.from_numpy(weights)
    function = mt.Classifier.from_function(lambda x: x.reshape(len(x), -1) @ weights.T, **SETTINGS)
    return function, mt.Classifier(module, **SETTINGS)


@pytest.mark.parametrize("method", WORK)
def test_a_function_predicts_what_the_same_module_predicts(linear, method):
    function, module = (mt.method(method, classifier) for classifier in linear)
    for image in pictures(3):
        torch.testing.assert_close(function.predict(image).logits, module.predict(image).logits)
    x = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(function(x), module(x))


@pytest.mark.parametrize("method", METHODS)
def test_each_method_works_or_says_which_ones_do(linear, method):
    """The list in the messages is that of the methods that work."""
    if method in WORK:
        mt.method(method, linear[0])
        return
    with pytest.raises(MemoError) as refused:
        mt.method(method, linear[0])
    if method != "ttt":  # which needs another kind of model
        assert str(refused.value).endswith(f"such as {WORK[0]}, {WORK[1]} or {WORK[2]}")
        assert "FunctionModule" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("takes", ["numpy", "tensor"])
def test_a_function_gets_what_it_asks_for(takes):
    seen = []

    def function(x):
        seen.append(x)
        return np.zeros((len(x), 3))

    classifier = mt.Classifier.from_function(function, takes=takes, **SETTINGS)
    logits = mt.method("tta", classifier, n_views=5, micro_batch=4).predict(pictures(1)[0]).logits
    assert logits.dtype == torch.float32
    kind, dtype = {"numpy": (np.ndarray, np.float32), "tensor": (torch.Tensor, torch.float32)}[takes]
    assert all(isinstance(x, kind) and x.dtype == dtype and x.shape[1:] == (3, 8, 8) for x in seen)
    assert {len(x) for x in seen} == {4, 1}


@pytest.mark.parametrize(
    "make", [list, tuple, np.asarray, torch.as_tensor, lambda x: torch.as_tensor(x).double()]
)
def test_logits_come_in_any_form(make):
    classifier = mt.Classifier.from_function(lambda x: make([[1.0, 2.0, 4.0]] * len(x)), **SETTINGS)
    prediction = mt.method("source", classifier).predict(pictures(1)[0])
    expected = np.exp([1.0, 2.0, 4.0]) / np.exp([1.0, 2.0, 4.0]).sum()
    np.testing.assert_allclose(prediction.probabilities, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"logits": 1}, r"expected logits \(N, K\) as an array or a tensor, got dict"),
        ("cat", "got str"),
        ([[1.0], [2.0, 3.0]], "got list"),
        ([1.0, 2.0], r"expected logits of shape \[1, K\]"),
    ],
)
def test_outputs_that_are_no_logits(output, message):
    classifier = mt.Classifier.from_function(lambda _: output, **SETTINGS)
    with pytest.raises(ModelError, match=message):
        mt.method("source", classifier).predict(pictures(1)[0])


def test_only_functions_are_functions():
    with pytest.raises(ConfigError, match="expected a function of a batch, got int"):
        FunctionModule(3, "numpy")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownName, match="unknown kind of input 'array': choose from numpy, tensor"):
        mt.Classifier.from_function(len, takes="array")


def zeros(x):
    return np.zeros((len(x), 3))


def test_copies_share_the_function_but_are_modules_of_their_own():
    classifier = mt.Classifier.from_function(zeros, **SETTINGS)
    copied = classifier.independent()
    assert copied.module is not classifier.module
    assert deepcopy(copied.module)(torch.zeros(2, 3, 8, 8)).shape == (2, 3)
    assert pickle.loads(pickle.dumps(classifier))(torch.zeros(2, 3, 8, 8)).shape == (2, 3)


def test_probabilities_instead_of_logits_are_told_once(recwarn):
    def softmax(x):
        scores = np.exp(x.reshape(len(x), -1)[:, :4])
        return scores / scores.sum(axis=1, keepdims=True)

    robust = mt.method("source", mt.Classifier.from_function(softmax, **SETTINGS))
    with pytest.warns(
        MemoWarning, match="FunctionModule: its outputs look like probabilities.*the logarithm"
    ):
        robust.predict(pictures(1)[0])
    recwarn.clear()
    robust.predict(pictures(2))
    mt.method("tta", mt.Classifier.from_function(lambda x: np.log(softmax(x)), **SETTINGS)).predict(
        pictures(1)[0]
    )
    mt.method("source", build_classifier("group-norm")).predict(pictures(1)[0])
    assert not recwarn.list
