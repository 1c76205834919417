"""Products of matrices in bfloat16: nearly the same answers, and the same weights."""

import pytest
import torch

import memo_tta as mt
from memo_tta.methods.ledger import Ledger
from memo_tta.methods.precision import computing
from tests.nets import build_classifier, pictures


@pytest.fixture
def classifier():
    return build_classifier("group-norm")


@pytest.fixture
def image():
    return pictures(1)[0]


@pytest.mark.parametrize("method", ["tta", "memo"])
def test_bf16_answers_nearly_the_same_and_leaves_the_weights_alone(classifier, image, method):
    before = [p.detach().clone() for p in classifier.module.parameters()]
    full, reduced = (
        mt.method(method, classifier, n_views=4, precision=precision).predict(image)
        for precision in ("float32", "bf16")
    )
    difference = (full.probabilities - reduced.probabilities).abs().max()
    assert 0 < difference < 0.02  # eight bits of mantissa
    pairs = zip(before, classifier.module.parameters(), strict=True)
    assert all(p.dtype == torch.float32 and torch.equal(b, p) for b, p in pairs)


@pytest.mark.parametrize("net", ["group-norm", "no-norm", "transformer"])
def test_the_answer_is_that_of_the_adapted_weights(net, image):
    """Autocast keeps what it cast once; a step must not be lost to that."""
    options = {"n_views": 4, "lr": 1.0, "augment": "standard", "prior_strength": None}
    full, reduced = (
        mt.Memo(build_classifier(net), precision=precision, **options).predict(image)
        for precision in ("float32", "bf16")
    )
    moved = (full.probabilities - full.source.probabilities).abs().max()
    assert (full.probabilities - reduced.probabilities).abs().max() < 0.25 * moved


def test_ttt_computes_in_it_too(image):
    full, reduced = (
        mt.method("ttt", build_classifier("rotation"), n_views=4, precision=precision).predict(image)
        for precision in ("float32", "bf16")
    )
    assert not torch.equal(full.logits, reduced.logits)


def test_afterwards_autocast_is_as_the_user_left_it():
    x = torch.ones(2, 2)
    with torch.autocast("cpu", torch.float16):
        with computing("bf16", "cpu"):
            assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).dtype == torch.float16
        with computing("float32", "cpu"):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.float16 and torch.is_autocast_cache_enabled()
    assert (x @ x).dtype == torch.float32


def test_methods_of_other_precision_share_no_answers(classifier, image):
    reduced = mt.Memo(classifier, n_views=4, precision="bf16", prior_strength=None)
    tta = mt.method("tta", classifier, n_views=4)
    ledger, point = Ledger(), classifier.point(image)
    reduced.predict_points([point], [0], ledger)
    (shared,) = tta.predict_points([point], [0], ledger)
    assert torch.equal(shared.logits, tta.predict(image, sample_id=0).logits)


def test_a_compiled_module_is_a_module(classifier, image):
    module = torch.compile(classifier.module, backend="eager")
    compiled = mt.Classifier(module, size=8, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    answers = [mt.Memo(c, n_views=4, prior_strength=None).predict(image) for c in (classifier, compiled)]
    torch.testing.assert_close(answers[0].logits, answers[1].logits)
