"""Averages that trust the sure groups of views."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax, xlogy

import memo_tta as mt
from memo_tta.errors import ConfigError, UnknownName
from memo_tta.methods import METHODS
from memo_tta.methods.presets import PRESETS
from memo_tta.objectives import entropy, marginal_log_probabilities, weighted_log_probabilities
from memo_tta.views.restore import CHOSEN, Restore
from tests.nets import build_classifier, pictures

LR = 0.05


@st.composite
def views_in_groups(draw):
    groups = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.normal(0, draw(st.floats(0, 20)), (sum(groups), draw(st.integers(2, 6)))), groups


@given(views_in_groups(), st.floats(0, 50))
def test_the_average_is_that_of_its_definition(given_views, temperature):
    logits, groups = given_views
    p = np.array([part.mean(axis=0) for part in np.split(softmax(logits, axis=1), np.cumsum(groups)[:-1])])
    weights = softmax(np.log(groups) + temperature * xlogy(p, p).sum(axis=1))
    ours = weighted_log_probabilities(torch.from_numpy(logits), temperature, groups).exp().numpy()
    np.testing.assert_allclose(ours, weights @ p, atol=1e-9)
    assert ours.sum() == pytest.approx(1, abs=1e-9)


@given(views_in_groups())
def test_at_temperature_zero_it_is_the_paper_s_bit_for_bit(given_views):
    logits = torch.from_numpy(given_views[0]).float()
    assert torch.equal(
        weighted_log_probabilities(logits, 0, given_views[1]), marginal_log_probabilities(logits)
    )


def test_close_to_zero_it_is_nearly_the_paper_s():
    logits = torch.randn(9, 5, dtype=torch.float64)
    for groups in (None, [3, 3, 3], [1, 2, 6]):
        nearly = weighted_log_probabilities(logits, 1e-9, groups)
        torch.testing.assert_close(nearly, marginal_log_probabilities(logits), atol=1e-8, rtol=0)


def test_far_above_zero_the_surest_group_answers():
    unsure, sure = torch.zeros(3, 4), torch.tensor([[0.0, 9, 0, 0]] * 2)
    said = weighted_log_probabilities(torch.cat([unsure, sure]), 1000, [3, 2])
    torch.testing.assert_close(said, sure[0].log_softmax(0))


@pytest.mark.parametrize("groups", [None, [2, 3, 1]])
def test_gradients_are_those_of_differences(groups):
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: entropy(weighted_log_probabilities(x, 3.0, groups)), logits)


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[5e3, -5e3, 0], [-torch.inf, 1e4, 0], [0, 0, 0]]).requires_grad_()
    value = entropy(weighted_log_probabilities(logits, 8.0, [2, 1]))
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.isfinite() and gradient.isfinite().all()


def memo(**options):
    return mt.Memo(build_classifier("group-norm"), n_views=6, lr=LR, **options)


@pytest.mark.parametrize("predict", ["point", "marginal"])
def test_memo_at_temperature_zero_is_the_paper_s_bit_for_bit(predict):
    for image in pictures(3):
        ours = memo(weighting="confidence", temperature=0, predict=predict).predict(image)
        wanted = memo(predict=predict).predict(image)
        assert torch.equal(ours.logits, wanted.logits) and ours.marginal_entropy == wanted.marginal_entropy


def test_a_step_lowers_the_entropy_of_the_weighted_average():
    robust = memo(weighting="confidence", temperature=4, predict="marginal")
    seen = robust.explain(pictures(1)[0])
    before, after = (
        entropy(weighted_log_probabilities(torch.stack([p.logits for p in answers]), 4))
        for answers in (seen.before, seen.after)
    )
    assert float(before) == pytest.approx(seen.prediction.marginal_entropy, rel=1e-5)
    assert after < before
    torch.testing.assert_close(
        seen.prediction.logits,
        weighted_log_probabilities(torch.stack([p.logits for p in seen.after]), 4),
        atol=1e-5,
        rtol=1e-5,
    )


def test_the_surest_group_may_answer():
    robust = memo(predict="group")
    seen = robust.explain(pictures(1)[0])
    surest = min(seen.after, key=lambda p: p.entropy)  # every AugMix view is a group
    torch.testing.assert_close(seen.prediction.probabilities, surest.probabilities, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"weighting": "confidence", "objective": "conditional_entropy"},
            "weighting: 'confidence' weighs the marginal",
        ),
        ({"weighting": "confidence", "select": 0.5}, "both choose among views"),
        ({"temperature": -1}, "temperature: expected at least 0, got -1"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        memo(**options)
    with pytest.raises(UnknownName, match="unknown weighting 'fair'"):
        memo(weighting="fair")


def restoring(**options):
    return mt.Memo(build_classifier("group-norm"), preset="best", **options)


def test_restore_averages_views_and_adapts_nothing():
    x, views = torch.randn(9, 3, 8, 8, generator=torch.Generator().manual_seed(0)).split([1, 8])
    module = build_classifier("group-norm").module.eval()
    with torch.no_grad():
        logits = module(views)
    plain = restoring(n_views=8, early_views=None).predict_views(x, views)
    torch.testing.assert_close(plain.logits, marginal_log_probabilities(logits))
    assert not plain.adapted and plain.reason == "averaged over the views, nothing adapted"
    weighed = restoring(n_views=8, early_views=None, weighting="confidence", temperature=30)
    prediction = weighed.predict_views(x, views)
    groups = list(Restore(8).groups(8).values())
    torch.testing.assert_close(prediction.logits, weighted_log_probabilities(logits, 30, groups))
    assert len(groups) == len(CHOSEN) and not torch.allclose(prediction.logits, plain.logits, atol=1e-3)


def test_without_a_step_memo_is_test_time_augmentation():
    classifier, image = build_classifier("group-norm"), pictures(1)[0]
    ours = mt.Memo(classifier, steps=0, predict="marginal", n_views=6).predict(image)
    theirs = METHODS["tta"](classifier, n_views=6).predict(image)
    assert torch.equal(ours.logits, theirs.logits) and ours.marginal_entropy == theirs.marginal_entropy


def test_the_best_preset_is_the_restore_method():
    image = pictures(1)[0]
    theirs = METHODS["restore"](build_classifier("group-norm"), n_views=14).predict(image)
    assert torch.equal(restoring(n_views=14).predict(image).logits, theirs.logits)
    with pytest.raises(UnknownName, match=r"unknown preset 'bset'.*did you mean 'best'"):
        mt.Memo(build_classifier("group-norm"), preset="bset")


def test_what_is_said_goes_before_the_preset_and_the_preset_before_the_classifier():
    classifier = build_classifier("group-norm", n_views=3, prior_strength=4)
    options = mt.Memo(classifier, preset="best", temperature=7).options
    assert options.temperature == 7 and options.prior_strength is None
    assert options.n_views == PRESETS["best"]["n_views"]


def test_restore_stops_early_where_the_first_views_are_sure():
    robust = restoring(n_views=14, early_views=2, early_confidence=1e-6)
    x, views = torch.randn(1, 3, 8, 8), torch.randn(14, 3, 8, 8)
    views[:2] = x  # so they say what the source says
    prediction = robust.predict_views(x, views)
    assert prediction.reason.startswith("the first 2 views agree with the source, confidence 0.")
    assert torch.equal(prediction.logits, prediction.source.logits)
    unsure = restoring(n_views=14, early_views=2, early_confidence=1).predict_views(x, views)
    assert unsure.reason == "averaged over the views, nothing adapted"


def test_what_the_plain_group_sees_comes_first():
    seen = []
    robust = restoring(n_views=14, early_views=2, early_confidence=1)
    robust.classifier.module.register_forward_hook(lambda _m, given, _o: seen.append(len(given[0])))
    robust.predict(pictures(1)[0])
    assert seen == [1, 2, 14]


def test_nothing_is_restored_where_the_first_views_are_sure(monkeypatch):
    robust, image = restoring(n_views=14, early_views=2, early_confidence=1e-6), pictures(1)[0]
    monkeypatch.setattr(Restore, "plain", lambda _self, image, n, _rng: torch.zeros(n, 3, 8, 8))
    monkeypatch.setattr(Restore, "__call__", lambda *_: pytest.fail("restored"))
    with torch.no_grad():
        bias = robust.classifier.module.eval()(robust.classifier.normalise(torch.zeros(1, 3, 8, 8)))
    monkeypatch.setattr(robust, "source_logits", lambda _batch: bias)
    assert robust.predict(image).reason.startswith("the first 2 views agree")
