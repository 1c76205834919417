"""Weights that are kept between points, compared with plain loops, and collapse detection."""

import math
from copy import deepcopy

import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError, UnknownName
from memo_tta.methods import memory
from memo_tta.methods.memory import COLLAPSE_MARGIN, DECAY, STEP_SHARE, Carried, CollapseDetector
from memo_tta.methods.update import SGD
from memo_tta.objectives import marginal_entropy
from tests.nets import CLASSES, build_classifier, everything, last_linear, pictures

LR, PULL = 0.05, 0.25


def stream(points=5):
    """Return points with eight views each; every other point has similar views, so that it is confident."""
    generator = torch.Generator().manual_seed(7)
    spreads = [3.0 if place % 2 else 0.3 for place in range(points)]
    drawn = [torch.randn(9, 3, 8, 8, generator=generator) for _ in range(points)]
    return [(3 * d[:1], 3 * d[:1] + spread * d[1:]) for d, spread in zip(drawn, spreads, strict=True)]


def plain_loop(classifier, points, is_carried, step_share, pull, limit):
    """Return logits and marginal entropies of a plain script.

    After each prediction, carried layers move slowly and all other weights are reset.
    """
    module = deepcopy(classifier.module).eval().requires_grad_(True)
    source = [p.detach().clone() for p in module.parameters()]
    slow = [p.clone() for p in source]
    lives_on = {id(p) for layer in module.modules() if is_carried(layer) for p in layer.parameters()}
    answers, entropies = [], []
    for x, views in points:
        module.zero_grad()
        loss = marginal_entropy(module(views))
        loss.backward()
        entropies.append(loss.item())
        with torch.no_grad():
            for p in module.parameters():
                p -= LR * p.grad
            answers.append(module(x)[0].clone())
            for p, original, kept in zip(module.parameters(), source, slow, strict=True):
                if id(p) in lives_on and entropies[-1] < limit:
                    kept += step_share * (p - kept)
                    kept += pull * (original - kept)
                p.copy_(kept)
    return answers, entropies


@pytest.mark.parametrize("limit", [1, 0.96])  # all points are confident, or only some
@pytest.mark.parametrize("reset", ["never", "anchor"])
def test_answers_are_those_of_the_plain_loop(reset, limit, monkeypatch):
    monkeypatch.setattr(memory, "ENTROPY_LIMIT", limit)
    classifier = build_classifier("group-norm")
    before = everything(classifier.module)
    pull = {"pull": PULL} if reset == "anchor" else {}
    robust = mt.Memo(classifier, reset=reset, lr=LR, **pull)
    assert robust.online
    norms_only = (lambda layer: isinstance(layer, nn.GroupNorm), STEP_SHARE, PULL, limit * math.log(CLASSES))
    kind = norms_only if reset == "anchor" else (lambda layer: True, 1, 0, math.inf)
    expected, entropies = plain_loop(classifier, stream(), *kind)
    if reset == "anchor":
        assert len({value < kind[3] for value in entropies}) == (1 if limit == 1 else 2)
    for (x, views), wanted in zip(stream(), expected, strict=True):
        torch.testing.assert_close(robust.predict_views(x, views).logits, wanted, rtol=1e-4, atol=1e-5)
        assert everything(classifier.module) == before
    # They differ from those of points on their own, and repeat after a reset.
    alone = [mt.Memo(classifier, lr=LR).predict_views(x, views).logits for x, views in stream()]
    assert torch.allclose(alone[0], expected[0], atol=1e-5)
    assert not torch.allclose(alone[-1], expected[-1], atol=1e-4)
    robust.reset()
    torch.testing.assert_close(robust.predict_views(*stream()[0]).logits, expected[0], rtol=1e-4, atol=1e-5)


def test_a_pull_of_one_is_the_paper():
    classifier = build_classifier("group-norm")
    anchored, episodic = mt.Memo(classifier, reset="anchor", pull=1, lr=LR), mt.Memo(classifier, lr=LR)
    for x, views in stream():
        ours, wanted = (robust.predict_views(x, views).logits for robust in (anchored, episodic))
        assert torch.equal(ours, wanted)


def logits_of(label: int) -> torch.Tensor:
    return torch.eye(CLASSES)[label]


def test_a_collapse_is_seen_as_soon_as_the_shares_say():
    detector = CollapseDetector()
    # The share of label 0 is 1 - DECAY^n after n points; the source spreads over the other labels.
    needed = math.ceil(math.log(1 - COLLAPSE_MARGIN) / math.log(DECAY))
    seen = [detector.observe(logits_of(0), logits_of(1 + n % (CLASSES - 1))) for n in range(needed)]
    assert seen == [False] * (needed - 1) + [True]


def test_a_stream_of_one_label_is_no_collapse():
    detector = CollapseDetector()
    assert not any(detector.observe(logits_of(2), logits_of(2)) for _ in range(1000))


def test_after_a_collapse_the_next_point_starts_from_the_source(monkeypatch):
    monkeypatch.setattr(memory, "ENTROPY_LIMIT", 1)
    classifier = build_classifier("group-norm")
    robust = mt.Memo(classifier, reset="anchor", lr=LR)
    x, views = stream()[0]
    first = robust.predict_views(x, views).logits
    monkeypatch.setattr(CollapseDetector, "observe", lambda *_: True)
    carried_on = robust.predict_views(x, views).logits
    assert not torch.equal(carried_on, first)
    assert torch.equal(robust.predict_views(x, views).logits, first)


def test_a_point_that_cannot_be_adapted_to_changes_nothing():
    classifier = build_classifier("group-norm")
    robust = mt.Memo(classifier, reset="never", lr=LR)
    (x, views), (_, other) = stream(2)
    robust.predict_views(x, views)
    expected = robust.predict_views(x, other).logits
    robust.reset()
    robust.predict_views(x, views)
    assert not robust.predict_views(x, torch.full_like(views, torch.nan)).adapted
    assert torch.equal(robust.predict_views(x, other).logits, expected)


def test_weights_that_are_not_finite_are_not_kept():
    layer = nn.Linear(2, 2)
    carried = Carried(lambda: SGD(LR), list(layer.parameters()), carry_rule=False)
    rule = carried.recall()
    assert carried.capture(rule) is not None
    nn.init.constant_(layer.weight, torch.inf)
    assert carried.capture(rule) is None


@pytest.mark.parametrize(("net", "options"), [("no-norm", {}), ("group-norm", {"params": "head"})])
def test_an_anchor_needs_norm_layers(net, options):
    with pytest.raises(ConfigError, match="reset: 'anchor' keeps the adapted parameters of norm layers"):
        mt.Memo(build_classifier(net), reset="anchor", **options)


def test_options_are_checked():
    with pytest.raises(UnknownName, match=r"unknown reset 'sometimes': choose from always, never, anchor"):
        mt.Memo(build_classifier("group-norm"), reset="sometimes")
    with pytest.raises(ConfigError, match=r"pull: expected a number in \(0, 1\], got 0"):
        mt.Memo(build_classifier("group-norm"), reset="anchor", pull=0)


def raise_keyboard_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_interrupted_in_the_middle_nothing_is_carried():
    classifier = build_classifier("group-norm")
    robust = mt.Memo(classifier, reset="anchor", n_views=4, lr=LR)
    first, second = pictures(2)
    robust.predict(first)
    expected = robust.predict(second).logits
    robust.reset()
    robust.predict(first)
    hook = last_linear(classifier).register_forward_hook(raise_keyboard_interrupt)
    with pytest.raises(KeyboardInterrupt):
        robust.predict(second)
    hook.remove()
    assert torch.equal(robust.predict(second).logits, expected)


@pytest.mark.parametrize("teaches", [True, False])
def test_moments_are_carried_also_by_points_that_teach_nothing(teaches, monkeypatch):
    """Adam's moments are kept from point to point whether or not the weights are."""
    monkeypatch.setattr(memory, "ENTROPY_LIMIT", 1 if teaches else 0)
    options = {"reset": "anchor", "pull": 1, "optimizer": "adamw", "lr": 0.01}  # so the weights never change
    answers = []
    for carry in (False, True):
        robust = mt.Memo(build_classifier("group-norm"), carry_optimizer=carry, **options)
        answers.append([robust.predict_views(x, views).logits for x, views in stream(3)])
    alone, carried = answers
    assert torch.equal(alone[0], carried[0]) and not torch.equal(alone[1], carried[1])
