"""Objectives, compared with published values, scipy and their definitions."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax, rel_entr, softmax, xlogy

from memo_tta.errors import ConfigError
from memo_tta.objectives import (
    OBJECTIVES,
    conditional_entropy,
    marginal_entropy,
    pairwise_cross_entropy,
)

SHORT = {"marginal_entropy": "me", "conditional_entropy": "ce", "pairwise_cross_entropy": "pce"}
CASES = ["b8_c10", "b1_c10", "b4_c10_extreme", "b6_c5_identical", "b3_c4_uniform"]
NO_PAIRS = ("b1_c10", "pairwise_cross_entropy")


@pytest.mark.parametrize(("case", "name"), [pair for pair in product(CASES, OBJECTIVES) if pair != NO_PAIRS])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_value_and_gradient_are_the_published_ones(golden, name, case, dtype, tolerance):
    expected = golden.json("losses")[case][name]
    vectors = golden.arrays("losses")
    logits = torch.from_numpy(vectors[f"{case}__logits"]).to(dtype).requires_grad_()
    loss = OBJECTIVES[name](logits)
    (gradient,) = torch.autograd.grad(loss, logits)
    wanted = vectors[f"{case}__{SHORT[name]}_grad"]
    assert float(loss.detach()) == pytest.approx(expected, rel=tolerance, abs=tolerance)
    # Terms as large as the range of the logits cancel in a gradient, so its rounding error scales with it.
    rounding = torch.finfo(dtype).eps * np.ptp(vectors[f"{case}__logits"])
    np.testing.assert_allclose(gradient.numpy(), wanted, rtol=0, atol=tolerance + rounding)


moderate = arrays(
    np.float64, st.tuples(st.integers(2, 6), st.integers(2, 7)), elements=st.floats(-30, 30, width=32)
)


@given(moderate)
def test_values_agree_with_scipy_from_the_definitions(logits):
    x, p = torch.from_numpy(logits), softmax(logits, axis=1)
    mean, log_p = p.mean(axis=0), log_softmax(logits, axis=1)
    assert float(marginal_entropy(x)) == pytest.approx(-xlogy(mean, mean).sum(), abs=1e-9)
    assert float(conditional_entropy(x)) == pytest.approx(-xlogy(p, p).sum(axis=1).mean(), abs=1e-9)
    pairs = [-(p[i] * log_p[j]).sum() for i in range(len(p)) for j in range(len(p)) if i != j]
    assert float(pairwise_cross_entropy(x)) == pytest.approx(np.mean(pairs), rel=1e-9, abs=1e-9)


@given(moderate)
def test_marginal_exceeds_conditional_by_the_mean_divergence_from_the_marginal(logits):
    p = softmax(logits, axis=1)
    divergence = rel_entr(p, p.mean(axis=0)).sum(axis=1).mean()
    x = torch.from_numpy(logits)
    assert float(marginal_entropy(x) - conditional_entropy(x)) == pytest.approx(divergence, abs=1e-9)


extreme = arrays(
    np.float32, st.tuples(st.integers(2, 5), st.integers(2, 6)), elements=st.sampled_from([-1e4, 0, 1, 1e4])
)


@pytest.mark.parametrize("name", OBJECTIVES)
@given(logits=extreme)
def test_one_hot_float32_predictions_give_finite_values_and_gradients(name, logits):
    x = torch.from_numpy(logits).requires_grad_()
    loss = OBJECTIVES[name](x)
    (gradient,) = torch.autograd.grad(loss, x)
    assert loss.isfinite() and loss >= -1e-4
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_masked_class_does_not_count(name):
    masked = torch.tensor([[1.0, 2.0, -math.inf], [0.5, -1.0, -math.inf]], requires_grad=True)
    loss = OBJECTIVES[name](masked)
    (gradient,) = torch.autograd.grad(loss, masked)
    assert float(loss.detach()) == pytest.approx(float(OBJECTIVES[name](masked.detach()[:, :2])), abs=1e-6)
    assert gradient.isfinite().all() and (gradient[:, 2] == 0).all()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_bfloat16_logits_are_evaluated_in_float32(name):
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert float(OBJECTIVES[name](logits)) == float(OBJECTIVES[name](logits.float()))


def test_confident_disagreement_has_high_marginal_and_no_conditional_entropy():
    logits = torch.eye(4) * 1e4
    assert float(marginal_entropy(logits)) == pytest.approx(math.log(4), rel=1e-6)
    assert float(conditional_entropy(logits)) == 0


def test_one_view_has_no_pair():
    with pytest.raises(ConfigError, match="at least 2 views, got 1"):
        pairwise_cross_entropy(torch.zeros(1, 3))
