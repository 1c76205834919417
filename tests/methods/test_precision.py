"""Matrix products in bfloat16: nearly the same predictions, and the same weights."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.methods.precision import in_precision
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
    """Autocast caches cast weights; a step must not be lost to that."""
    options = {"n_views": 4, "lr": 1.0, "augment": "standard", "prior_strength": None}
    full, reduced = (
        mt.Memo(build_classifier(net), precision=precision, **options).predict(image)
        for precision in ("float32", "bf16")
    )
    moved = (full.probabilities - full.source.probabilities).abs().max()
    assert (full.probabilities - reduced.probabilities).abs().max() < 0.25 * moved


def test_ttt_computes_in_it_too(image):
    """Both heads compute in bfloat16: the one for rotations and the one for classes."""
    classifier, seen = build_classifier("rotation"), []
    for head in (classifier.module.get_submodule("rotation"), classifier.module):
        head.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    mt.method("ttt", classifier, n_views=4, precision="bf16").predict(image)
    # Rotation logits, adapted logits, and source logits, which are always in full precision.
    assert seen == [torch.bfloat16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("method", ["tta", "restore", "memo", "ttt"])
def test_views_are_made_in_full_precision(image, method):
    """Restorations use matrix products too, and measure noise that is below the precision of bfloat16."""
    seen = []

    def augment(image, n, rng):
        seen.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
        return torch.rand(n, 3, 8, 8)

    net = "rotation" if method == "ttt" else "group-norm"
    options = {"early_views": 1} if method == "restore" else {}
    robust = mt.method(method, build_classifier(net), n_views=3, precision="bf16", augment=augment, **options)
    robust.predict(image)
    assert seen == [torch.float32]


def test_afterwards_autocast_is_as_the_user_left_it():
    x = torch.ones(2, 2)
    with torch.autocast("cpu", torch.float16):
        with in_precision("bf16", "cpu"):
            assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).dtype == torch.float16
        with in_precision("float32", "cpu"):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.float16
    assert (x @ x).dtype == torch.float32


def test_steps_are_not_lost_in_an_autocast_of_the_caller_s(image):
    """Its cache would return the weights of before the step."""
    answers = []
    for around in (nullcontext(), torch.autocast("cpu", torch.bfloat16)):
        tent = mt.method("tent-all", build_classifier("batch-norm"), lr=0.5, online=False)
        with around:
            answers.append(tent.predict([image, *pictures(2)])[0])
    full, reduced = answers
    moved = (full.probabilities - full.source.probabilities).abs().max()
    assert (full.probabilities - reduced.probabilities).abs().max() < 0.25 * moved


def test_a_compiled_module_is_a_module(classifier, image):
    module = torch.compile(classifier.module, backend="eager")
    assert isinstance(module, nn.Module)
    compiled = mt.Classifier(module, size=8, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    answers = [mt.Memo(c, n_views=4, prior_strength=None).predict(image) for c in (classifier, compiled)]
    torch.testing.assert_close(answers[0].logits, answers[1].logits)
