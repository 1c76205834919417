"""Tent and batch-norm adaptation, compared with plain scripts that follow their papers."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.methods import METHODS
from tests.nets import build_classifier, pictures, view_method


def inputs(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def plain_tent(
    module: nn.Module, batches: list[torch.Tensor], lr: float, everything: bool
) -> list[torch.Tensor]:
    """Return the logits of each pass: batch norm in training mode without buffers, SGD with momentum."""
    module = copy.deepcopy(module).eval().requires_grad_(everything)
    parameters = list(module.parameters()) if everything else []
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.train()
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
            if not everything:
                parameters += [layer.weight.requires_grad_(), layer.bias.requires_grad_()]
    rule = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    answers = []
    for x in batches:
        logits = module(x)
        p = logits.softmax(1)
        loss = -(p * p.log()).sum(1).mean()
        rule.zero_grad()
        loss.backward()
        rule.step()
        answers.append(logits.detach())
    return answers


@pytest.mark.parametrize(("name", "everything"), [("tent", False), ("tent-all", True)])
def test_online_tent_equals_the_plain_script(name, everything):
    classifier = build_classifier("batch-norm")
    batches = [inputs(8), inputs(8, 1), inputs(5, 2)]
    expected = plain_tent(classifier.module, batches, 0.05, everything)
    robust = METHODS[name](classifier, lr=0.05, batch_size=8)
    torch.testing.assert_close(robust(torch.cat(batches)), torch.cat(expected), rtol=1e-4, atol=1e-5)
    assert robust.online and robust.points == 8


def test_episodic_tent_forgets_and_predicts_after_its_step():
    classifier = build_classifier("batch-norm")
    x, other = inputs(8), inputs(8, 1)
    robust = METHODS["tent-episodic"](classifier, lr=0.05)
    first = robust(x)
    robust(other)
    assert torch.equal(robust(x), first)
    # The second answer of an online run on the same batch is that of the once adapted model.
    expected = plain_tent(classifier.module, [x, x], 0.05, everything=False)
    torch.testing.assert_close(first, expected[1], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(first, expected[0], atol=1e-3)


def test_tent_on_one_point_is_memo_on_one_unchanged_view():
    classifier = build_classifier("dropout")
    x = inputs(1)
    tent = METHODS["tent-bs1"](classifier, lr=0.05)(x)
    memo = mt.Memo(classifier, lr=0.05, params="norm", prior_strength=16).predict_views(x, x)
    torch.testing.assert_close(tent[0], memo.logits)


def test_a_short_last_batch_is_used():
    classifier = build_classifier("batch-norm")
    assert METHODS["bn"](classifier, batch_size=4)(inputs(6)).shape == (6, 5)
    assert len(METHODS["tent"](classifier, batch_size=4).predict(pictures(6))) == 6


@pytest.mark.parametrize(("n", "prior"), [(1, 16), (6, 16), (6, 256)])
def test_batch_norm_adaptation_equals_the_formula(n, prior):
    """Compute the first layer by the formula, the rest with torch."""
    classifier, x = build_classifier("dropout"), inputs(n)
    module = classifier.module.eval()
    assert isinstance(module, nn.Sequential)
    _, conv, norm, *rest = module
    assert isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None and norm.running_var is not None
    with torch.no_grad():
        y = conv(x)
        share = prior / (prior + n)
        mean = share * norm.running_mean + (1 - share) * y.mean((0, 2, 3))
        var = share * norm.running_var + (1 - share) * y.var((0, 2, 3), correction=1)
        y = torch.nn.functional.batch_norm(y, mean, var, norm.weight, norm.bias)
        expected = nn.Sequential(*rest)(y)
    ours = METHODS["bn"](classifier, batch_size=8, prior_strength=prior)(x)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_presets_are_the_papers():
    classifier = build_classifier("batch-norm")
    bn1, bn = (METHODS[name](classifier) for name in ("bn1", "bn"))
    assert (bn1.points, bn1.options.prior_strength) == (1, 16)
    assert (bn.points, bn.options.prior_strength) == (256, 256)
    tent = METHODS["tent"](classifier)
    assert (tent.points, tent.options.lr, tent.options.momentum) == (64, 0.00025, 0.9)
    bs1 = METHODS["tent-bs1"](classifier)
    assert (bs1.points, bs1.online, bs1.options.prior_strength) == (1, False, 16)
    memo = METHODS["memo"](mt.Classifier(classifier.module, size=8, mean=(0.5,) * 3, std=(0.5,) * 3))
    assert (memo.options.n_views, memo.options.lr, memo.options.prior_strength) == (64, 0.00025, 16)


def test_bn_without_a_layer_says_so_and_answers_as_the_source():
    classifier = build_classifier("group-norm")
    with pytest.warns(mt.MemoWarning, match="no layer with running statistics"):
        robust = METHODS["bn1"](classifier)
    prediction = robust.predict(pictures(1)[0])
    assert not prediction.adapted and "no layer with running statistics" in (prediction.reason or "")
    assert torch.equal(prediction.logits, prediction.source.logits)


def test_tta_averages_probabilities_not_logits():
    classifier = build_classifier("no-norm")
    views = inputs(16) * 5
    with torch.no_grad():
        logits = classifier.module.eval()(views)
    for micro_batch in (None, 3):
        tta = view_method("tta", classifier, micro_batch=micro_batch).predict_views(inputs(1), views)
        np.testing.assert_allclose(tta.probabilities, logits.softmax(1).mean(0), atol=1e-6)
        assert not np.allclose(tta.probabilities, logits.mean(0).softmax(0), atol=1e-2)


def test_weights_that_are_not_finite_do_not_live_on(monkeypatch):
    robust = METHODS["tent"](build_classifier("batch-norm"), lr=0.05)
    expected = [p.logits for p in robust.predict(pictures(3))]
    robust.reset()
    with monkeypatch.context() as patch:
        patch.setattr("memo_tta.methods.memory.all_finite", lambda _: False)
        refused = robust.predict(pictures(3))
    assert {p.status for p in refused} == {"not_finite"}
    assert all(torch.equal(p.logits, p.source.logits) for p in refused)
    again = robust.predict(pictures(3))
    assert all(torch.equal(p.logits, wanted) for p, wanted in zip(again, expected, strict=True))
