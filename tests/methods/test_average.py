"""Averages over views, weighted or not, and votes."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import softmax, xlogy
from torch import Tensor, nn

import memo_tta as mt
from memo_tta.errors import ConfigError, UnknownName
from memo_tta.methods import METHODS
from memo_tta.methods.average import Vote, by_shift
from memo_tta.methods.tta import TTAOptions
from memo_tta.methods.view_method import ViewMethod
from memo_tta.methods.view_source import ViewOptions
from memo_tta.models.batch_norm import mixed_statistics
from memo_tta.objectives import entropy, marginal_log_probabilities, weighted_log_probabilities
from memo_tta.views.restored_versions import RestoredVersions
from memo_tta.views.restored_views import DEFAULT_SHARES, Restore
from tests.nets import LARGE, SIZE, build_classifier, large_classifier, large_image, pictures, view_method

LR = 0.05
NO_GATE = dict.fromkeys(("skip_margin", "skip_shift", "early_views"))


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
    average = weighted_log_probabilities(torch.cat([unsure, sure]), 1000, [3, 2])
    torch.testing.assert_close(average, sure[0].log_softmax(0))


@pytest.mark.parametrize("groups", [None, [2, 3, 1]])
def test_gradients_are_those_of_differences(groups):
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: entropy(weighted_log_probabilities(x, 3.0, groups)), logits)


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[5e3, -5e3, 0], [-torch.inf, 1e4, 0], [0, 0, 0]]).requires_grad_()
    value = entropy(weighted_log_probabilities(logits, 8.0, [2, 1]))
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.isfinite() and gradient.isfinite().all()


def memo(**options: Any) -> mt.Memo:
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
            "weighting: has no effect with objective='conditional_entropy'",
        ),
        (
            {"weighting": "confidence", "select": 0.5},
            "weighting: has no effect with select=0.5",
        ),
        ({"weighting": "confidence", "temperature": -1}, "temperature: expected at least 0, got -1"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        memo(**options)
    with pytest.raises(UnknownName, match="unknown weighting 'fair'"):
        memo(weighting="fair")


def restoring(**options: Any) -> ViewMethod[Any]:
    return view_method("restore", build_classifier("group-norm"), **options)


def test_restore_averages_views_and_adapts_nothing():
    x, views = torch.randn(9, 3, 8, 8, generator=torch.Generator().manual_seed(0)).split([1, 8])
    module = build_classifier("group-norm").module.eval()
    with torch.no_grad():
        logits = module(views)
    plain = restoring(n_views=8, early_views=None).predict_views(x, views)
    torch.testing.assert_close(plain.logits, marginal_log_probabilities(logits))
    assert (plain.status, plain.reason) == ("averaged", "averaged over the views, nothing adapted")
    weighed = restoring(n_views=8, early_views=None, weighting="confidence", temperature=30)
    prediction = weighed.predict_views(x, views)
    groups = list(Restore(8).groups(8).values())
    torch.testing.assert_close(prediction.logits, weighted_log_probabilities(logits, 30, groups))
    assert len(groups) == len(DEFAULT_SHARES) and not torch.allclose(
        prediction.logits, plain.logits, atol=1e-3
    )
    surest = restoring(n_views=8, early_views=None, predict="group").predict_views(x, views)
    averages = [part.softmax(dim=1).mean(dim=0) for part in logits.split(groups)]
    wanted = min(averages, key=lambda p: -(p * p.log()).sum())
    torch.testing.assert_close(surest.probabilities.float(), wanted, atol=1e-5, rtol=1e-4)
    assert surest.marginal_entropy == plain.marginal_entropy  # of all views in both


def test_restore_is_test_time_augmentation_of_restored_views():
    image = pictures(1)[0]
    theirs = mt.method("tta", build_classifier("group-norm"), n_views=14, augment="restore").predict(image)
    assert torch.equal(restoring(n_views=14, early_views=None).predict(image).logits, theirs.logits)


def test_with_a_prior_strength_each_version_is_classified_with_its_own_mixed_statistics():
    classifier, image = build_classifier("batch-norm"), pictures(1)[0]
    robust = view_method("restore", classifier, n_views=8, prior_strength=16, **NO_GATE)
    views = robust.explain(image, sample_id=0).views
    counts = list(Restore(SIZE).groups(8).values())
    assert len(views) == 8 and len(counts) == 2
    module = classifier.module.eval()
    with torch.no_grad():
        running = module(views).softmax(dim=1)
        with mixed_statistics(module, 16):
            plain, restored = (module(part).softmax(dim=1) for part in views.split(counts))
    wanted = torch.cat([plain, restored]).mean(dim=0)
    torch.testing.assert_close(robust.predict(image, sample_id=0).probabilities.float(), wanted)
    alone = view_method("tta", classifier, n_views=8, augment="restore").predict(image, sample_id=0)
    torch.testing.assert_close(alone.probabilities.float(), running.mean(dim=0))


def test_with_micro_batches_the_first_view_of_a_version_gives_the_statistics():
    classifier, image = build_classifier("batch-norm"), pictures(1)[0]
    options = {"n_views": 16, "prior_strength": 16, **NO_GATE}  # groups of 4 and 12 views
    one, three = (
        mt.method("restore", classifier, micro_batch=size, **options).predict(image, sample_id=0)
        for size in (1, 3)
    )
    torch.testing.assert_close(one.logits, three.logits)
    whole = mt.method("restore", classifier, **options).predict(image, sample_id=0)
    assert not torch.allclose(whole.logits, one.logits, atol=1e-6)


@pytest.mark.parametrize("distance", [0.2, 0.6])
def test_by_shift_a_pass_counts_in_inverse_proportion_to_its_own(distance):
    """Weights are computed in numpy from the first layer's input, and from the statistics of training."""
    classifier, image = large_classifier(), large_image()
    module = classifier.module
    conv, norm = module.get_submodule("0"), module.get_submodule("1")
    assert isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None and norm.running_var is not None
    head = module.get_submodule("8")
    assert isinstance(head, nn.Linear)
    views = classifier.normalise(RestoredVersions(LARGE)(image, 4, np.random.default_rng(0)))
    with torch.no_grad():
        means = conv(views).mean(dim=(2, 3)).numpy()
        variance = norm.running_var.numpy()
        trained = means[0] + distance * np.sqrt(variance)
        norm.running_mean.copy_(torch.from_numpy(trained))
        head.weight *= 100  # so that versions of the image get different predictions
        head.bias -= module(views[:1])[0]
        rows = [module(view) for view in views[:2].split(1)]
        with mixed_statistics(module, 16):
            rows += [module(view) for view in views[2:].split(1)]
    shift = ((means - trained) ** 2 / (variance + 1e-5)).mean(axis=1)
    assert shift[0] == pytest.approx(distance**2, rel=1e-3)
    weights = 1 / shift  # the first layer's input is the same with mixed statistics
    weights[0] *= 1 + 3 * max(0.0, 1 - shift[0] / 0.2)
    used = 4 if shift[0] >= 0.2 else 3
    probabilities = torch.cat(rows).softmax(dim=1).numpy()
    assert np.ptp(probabilities, axis=0).max() > 0.1
    wanted = np.average(probabilities[:used], axis=0, weights=weights[:used])
    robust = mt.method("restore", classifier, **NO_GATE)
    found = robust.predict(image)
    assert found.status == "averaged"
    np.testing.assert_allclose(found.probabilities.numpy(), wanted, atol=1e-5)
    rounded = mt.method("restore", classifier, **NO_GATE, precision="bf16").predict(image)
    np.testing.assert_allclose(rounded.probabilities.numpy(), wanted, atol=0.01)
    in_parts = mt.method("restore", classifier, **NO_GATE, micro_batch=1).predict(image)
    torch.testing.assert_close(in_parts.logits, found.logits, rtol=1e-5, atol=1e-5)
    (row,) = mt.method("restore", classifier, **NO_GATE)(classifier.point(image).x[None])
    torch.testing.assert_close(row, found.logits, rtol=1e-4, atol=1e-4)


def test_without_batch_norm_views_count_alike():
    classifier, image = build_classifier("group-norm"), pictures(1)[0]
    alike, by_shift = (
        mt.method("tta", classifier, n_views=3, weighting=weighting).predict(image)
        for weighting in ("uniform", "shift")
    )
    assert torch.equal(alike.logits, by_shift.logits)


def test_a_view_without_any_shift_gets_a_finite_weight():
    logits = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    torch.testing.assert_close(
        by_shift(logits, torch.tensor([0.0, 1.0]), with_image=False),
        logits[0].log_softmax(0),
        atol=1e-5,
        rtol=0,
    )


def test_the_image_itself_is_classified_once():
    """Passes of a large image: the source's, the mirrored restoration, and the half-restored versions."""
    classifier, image, seen = large_classifier(), large_image(), []
    classifier.module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    prediction = mt.method("restore", classifier, **NO_GATE, clean_views=4).predict(image)
    plain, restored, half, mirrored = torch.cat(seen)
    assert prediction.status == "averaged"
    torch.testing.assert_close(half, (plain + restored.flip(2)) / 2, atol=1e-5, rtol=0)
    assert torch.equal(mirrored, half.flip(2)) and not torch.equal(half, plain)


def test_all_given_views_count_with_mixed_statistics():
    classifier = large_classifier()
    x, views = torch.randn(7, 3, LARGE, LARGE, generator=torch.Generator().manual_seed(0)).split([1, 6])
    robust = view_method("restore", classifier, **NO_GATE, weighting="uniform")
    with torch.no_grad(), mixed_statistics(classifier.module, 16):
        wanted = classifier.module(views).softmax(dim=1).mean(dim=0)
    torch.testing.assert_close(robust.predict_views(x, views).probabilities.float(), wanted)


def test_an_input_that_is_no_exact_image_is_known_to_be_the_first_version():
    classifier, seen = large_classifier(), list[Tensor]()
    x = classifier.point(large_image()).x[None]
    exact = mt.method("restore", classifier, **NO_GATE)(x)
    classifier.module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    near = mt.method("restore", classifier, **NO_GATE)(x + 1e-4)
    assert [len(each) for each in seen] in ([1] * 3, [1] * 4)
    torch.testing.assert_close(near, exact, atol=0.01, rtol=0)


def test_few_views_of_a_clean_image_are_grouped_as_few_views():
    """Of 16 views 4 show the image, of 8 views 2: the prediction of 8 is that of a method with 8 views."""
    classifier, image = build_classifier("batch-norm"), pictures(1)[0]
    norm = classifier.module.get_submodule("1")
    shift = mt.method("source", classifier).predict(image).shift
    assert shift is not None and isinstance(norm, nn.BatchNorm2d) and norm.running_var is not None
    norm.running_var *= 10 * shift  # the shift is 0.1 now, as of a clean image
    options: dict[str, Any] = {"weighting": "confidence", "temperature": 30.0, **NO_GATE}
    few = mt.method("restore", classifier, clean_views=8, **options).predict(image, sample_id=0)
    wanted = mt.method("restore", classifier, n_views=8, **options).predict(image, sample_id=0)
    assert few.shift == pytest.approx(0.1, abs=0.01)
    torch.testing.assert_close(few.logits, wanted.logits)


@pytest.mark.parametrize("setting", [{"threshold": 0.5}, {"select": 0.5}, {"n_views": 3, "lr": 1.0}])
def test_restore_takes_nothing_from_settings_that_were_tuned_for_memo(setting):
    tuned, image = build_classifier("group-norm", **setting), pictures(1)[0]
    assert torch.equal(mt.method("restore", tuned).predict(image).logits, restoring().predict(image).logits)
    options = METHODS["restore"].resolve(tuned.settings, {})
    assert isinstance(options, ViewOptions) and options.n_views == 12


def test_restore_has_defaults_for_large_images():
    small, large = (METHODS["restore"].resolve({}, {}, size) for size in (64, 65))
    assert isinstance(small, TTAOptions) and isinstance(large, TTAOptions)
    assert (small.n_views, small.early_views, small.prior_strength, small.skip_margin) == (12, 2, None, None)
    assert (large.n_views, large.clean_views, large.prior_strength, large.skip_margin) == (4, 3, 16, 0.8)
    assert (small.weighting, large.weighting) == ("uniform", "shift")
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 65 * 65, 2))
    classifier = mt.Classifier(module, size=65, mean=(0.5,) * 3, std=(0.5,) * 3)
    assert mt.method("restore", classifier).options == large
    assert mt.method("restore", classifier, skip_shift=0.5).options.skip_shift == 0.5


@pytest.mark.parametrize("name", ["lr", "optimizer", "params", "pull", "steps", "threshold"])
def test_restore_has_no_options_that_do_nothing(name):
    assert name not in METHODS["restore"].declarations
    with pytest.raises(UnknownName, match=f"unknown option '{name}'"):
        restoring(**{name: 1})


def test_group_and_weighting_exclude_each_other():
    with pytest.raises(ConfigError, match="weighting: has no effect with predict='group'"):
        restoring(predict="group", weighting="confidence")
    assert restoring(predict="group", weighting="uniform").options.predict == "group"


def ballot(logits: np.ndarray, share: float) -> np.ndarray:
    """Return ZERO's share of votes of each class, counted one view at a time."""
    p = softmax(logits, axis=1)
    order = sorted(range(len(p)), key=lambda view: (-xlogy(p[view], p[view]).sum(), view))
    kept, rest = order[: max(1, round(share * len(p)))], order[max(1, round(share * len(p))) :]
    votes = np.zeros(p.shape[1])
    for view in kept:
        votes[p[view].argmax()] += 1
    leaders = [label for label in range(p.shape[1]) if votes[label] == votes.max()]
    for view in rest + kept:
        if len(leaders) > 1 and p[view].argmax() in leaders:
            votes[p[view].argmax()] += 1
            break
    return votes / votes.sum()


@given(views_in_groups(), st.floats(0.01, 1))
def test_a_vote_is_that_of_its_definition(given_views, share):
    logits, _ = given_views
    p = softmax(logits, axis=1)
    entropies = sorted((-xlogy(p, p).sum(axis=1)).tolist())
    assume(all(b - a > 1e-9 for a, b in itertools.pairwise(entropies)))
    ours = Vote(share)(torch.from_numpy(logits))
    expected = ballot(logits, share)
    np.testing.assert_allclose(ours.exp(), expected, atol=1e-12)
    assert int(ours.argmax()) == expected.argmax() and (expected == expected.max()).sum() == 1


def test_the_next_surest_view_for_a_tied_class_decides():
    views = torch.tensor([[9.0, 0, 0], [0, 8.0, 0], [0, 0, 7.0], [0, 5.0, 0], [3.0, 0, 0]])
    for order in itertools.permutations(range(5)):
        # Two voters are tied; the third votes for a class that is not, the fourth for the second class.
        np.testing.assert_allclose(Vote(0.4)(views[list(order)]).exp(), [1 / 3, 2 / 3, 0])
    # All vote and are tied, so the surest of them counts twice.
    np.testing.assert_allclose(Vote(1.0)(views[:3]).exp(), [0.5, 0.25, 0.25])


def test_zero_is_a_vote_at_temperature_zero_of_the_surest_tenth():
    classifier, image = build_classifier("group-norm"), pictures(1)[0]
    robust = mt.method("zero", classifier)
    assert (robust.options.n_views, robust.options.augment) == (64, "standard")
    found = robust.explain(image)
    logits = torch.stack([view.logits for view in found.before])
    assert len(logits) == 64
    surest = sorted(logits.double(), key=lambda row: entropy(row.log_softmax(dim=0)))[:6]
    cold = torch.stack(surest).div(1e-9).softmax(dim=1).mean(dim=0)
    (leader,) = (cold == cold.max()).nonzero()  # with these weights there is no tie
    assert found.prediction.index == int(leader) and found.prediction.status == "averaged"
    np.testing.assert_allclose(found.prediction.probabilities, cold, atol=1e-6)


def test_a_vote_on_what_is_not_a_number_is_none():
    assert Vote(0.5)(torch.tensor([[1.0, 2], [float("nan"), 0]])).isnan().all()


def test_only_a_vote_has_voters():
    with pytest.raises(ConfigError, match="voters: has no effect with predict='marginal'"):
        mt.method("tta", build_classifier("group-norm"), voters=0.2)
