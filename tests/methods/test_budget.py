"""Less work: points that need none, views that fit into a time, and lower precision."""

from itertools import count

import pytest
import torch

import memo_tta as mt
from memo_tta.errors import ConfigError
from memo_tta.methods import memo
from memo_tta.methods.ledger import Ledger
from memo_tta.methods.pace import Pace
from tests.nets import build_classifier, pictures


@pytest.fixture
def classifier():
    return build_classifier("group-norm")


@pytest.fixture
def image():
    return pictures(1)[0]


def same(image, n, rng):
    """Views that are the image itself."""
    return torch.from_numpy(image.transpose(2, 0, 1).copy()).float().div(255).expand(n, -1, -1, -1)


def mixed(image, n, rng):
    """The image first, then something else."""
    views = same(image, n, rng).clone()
    views[1:] = 1 - views[1:]
    return views


def test_views_that_agree_with_the_source_are_answer_enough(classifier, image):
    source = mt.methods.METHODS["source"](classifier).predict(image)
    options = {"n_views": 4, "augment": same, "early_views": 2}
    sure = mt.Memo(classifier, early_confidence=source.score * 0.99, **options).predict(image)
    assert not sure.adapted and "first 2 views agree" in sure.reason
    assert torch.equal(sure.logits, source.logits)
    unsure = mt.Memo(classifier, early_confidence=min(1, source.score * 1.01), **options).predict(image)
    plain = mt.Memo(classifier, n_views=4, augment=same).predict(image)
    assert unsure.adapted and torch.equal(unsure.logits, plain.logits)


def test_one_view_that_says_otherwise_is_enough_to_adapt(classifier, image):
    answers = classifier(classifier.normalise(mixed(image, 2, None))).argmax(dim=1)
    assert answers[0] != answers[1]
    options = {"n_views": 4, "augment": mixed, "early_confidence": 1e-6}
    assert not mt.Memo(classifier, early_views=1, **options).predict(image).adapted
    assert mt.Memo(classifier, early_views=2, **options).predict(image).adapted


def test_a_budget_is_a_preset_that_single_options_overrule(classifier):
    fast = mt.Memo(classifier, budget="fast").options
    assert (fast.skip_confidence, fast.early_views, fast.early_confidence) == (0.98, 4, 0.95)
    assert mt.Memo(classifier, budget="fast", skip_confidence=0.5).options.skip_confidence == 0.5
    assert mt.Memo(classifier).options.skip_confidence is None
    assert mt.Memo(build_classifier("group-norm", budget="fast")).options.early_views == 4
    with pytest.raises(ConfigError, match=r"budget.*full"):
        mt.Memo(classifier, budget="fats")


@pytest.mark.parametrize(
    ("fixed", "per_view", "seconds"), [(0.0, 0.01, 0.32), (0.05, 0.01, 0.2), (1, 1, 0.5)]
)
def test_pace_settles_where_the_whole_point_takes_the_time(fixed, per_view, seconds):
    pace = Pace(seconds, most=64)
    pace.learn(pace.views, 10.0)  # the first point is slow
    for _ in range(40):
        views = pace.views
        pace.learn(views, fixed + per_view * views)
    wanted = max(1, (seconds - fixed) / per_view)
    assert wanted - 1.5 <= pace.views <= wanted + 1e-6


def test_pace_goes_no_further_than_the_views_asked_for():
    pace = Pace(1000.0, most=6)
    assert pace.views == 4
    pace.learn(4, 0.1)
    assert pace.views == 6


def test_a_point_gets_as_many_views_as_its_time_allows(classifier, image, monkeypatch):
    drawn, ticks = [], count()

    def augment(image, n, rng):
        drawn.append(n)
        return same(image, n, rng)

    monkeypatch.setattr(memo, "perf_counter", lambda: float(next(ticks)))  # every point takes one second
    robust = mt.Memo(classifier, n_views=8, augment=augment, budget_seconds=0.5)
    for _ in range(3):
        robust.predict(image)
    assert drawn == [4, 2, 1]


@pytest.mark.parametrize("method", ["tta", "memo"])
def test_bf16_answers_nearly_the_same_and_leaves_the_weights_alone(classifier, image, method):
    before = [p.detach().clone() for p in classifier.module.parameters()]
    full, reduced = (
        mt.methods.METHODS[method](classifier, n_views=4, precision=precision).predict(image)
        for precision in ("float32", "bf16")
    )
    difference = (full.probabilities - reduced.probabilities).abs().max()
    assert 0 < difference < 0.02  # eight bits of mantissa
    pairs = zip(before, classifier.module.parameters(), strict=True)
    assert all(p.dtype == torch.float32 and torch.equal(b, p) for b, p in pairs)


def test_methods_of_other_precision_share_no_answers(classifier, image):
    reduced = mt.Memo(classifier, n_views=4, precision="bf16", prior_strength=None)
    tta = mt.methods.METHODS["tta"](classifier, n_views=4)
    ledger, point = Ledger(), classifier.point(image)
    reduced.predict_points([point], [0], ledger)
    (shared,) = tta.predict_points([point], [0], ledger)
    assert torch.equal(shared.logits, tta.predict(image, sample_id=0).logits)


def test_a_compiled_module_is_a_module(classifier, image):
    module = torch.compile(classifier.module, backend="eager")
    compiled = mt.Classifier(module, size=8, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    answers = [mt.Memo(c, n_views=4, prior_strength=None).predict(image) for c in (classifier, compiled)]
    torch.testing.assert_close(answers[0].logits, answers[1].logits)
