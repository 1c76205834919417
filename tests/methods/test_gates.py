"""Gates keep the source prediction of points that need no adaptation."""

import math

import pytest
import torch

import memo_tta as mt
from memo_tta.methods import METHODS
from memo_tta.methods.gates import (
    GateOptions,
    entropy_gate,
    source_gate,
    source_is_confident,
    views_agree,
)
from memo_tta.methods.method import MeasuredPass
from memo_tta.views.restored_views import Restore
from tests.nets import build_classifier, last_linear, pictures, view_method


def logits_of(*scores: float) -> torch.Tensor:
    return torch.tensor(scores, dtype=torch.float64).log()


HALVES = torch.stack([logits_of(0.5, 0.25, 0.25)] * 2)


def test_a_source_that_is_just_confident_enough_closes_the_gate():
    assert source_is_confident(logits_of(0.5, 0.5), 0.5) == "source confidence 0.500 >= 0.5"
    assert source_is_confident(logits_of(0.5, 0.5), math.nextafter(0.5, 1)) is None


def test_views_that_are_just_confident_enough_close_the_gate():
    reason = "the first 2 views agree with the source, confidence 0.500"
    assert views_agree(HALVES, 0, 0.5) == reason
    assert views_agree(HALVES, 0, math.nextafter(0.5, 1)) is None


def test_gates_judge_half_precision_in_full():
    """Near one, bfloat16 has steps of 1/256."""
    logits = torch.tensor([[6.0, 0.0], [6.0, 0.0]], dtype=torch.bfloat16)
    exact = float(torch.tensor([6.0, 0.0]).softmax(dim=0)[0])
    assert views_agree(logits, 0, exact) and source_is_confident(logits[0], exact)
    assert not views_agree(logits, 0, exact + 1e-5) and not source_is_confident(logits[0], exact + 1e-5)


def test_views_must_all_say_the_label():
    assert views_agree(HALVES, 1, 0.1) is None
    other = torch.stack([logits_of(0.9, 0.05, 0.05), logits_of(0.4, 0.5, 0.1)])
    assert views_agree(other, 0, 0.1) is None and views_agree(other[:1], 0, 0.89) is not None


def test_an_entropy_at_the_limit_closes_the_gate():
    limit = 0.5 * math.log(4)
    assert entropy_gate(0.5, limit, 4) == "marginal entropy 0.693 <= 0.693"
    assert entropy_gate(0.5, math.nextafter(limit, 2), 4) is None
    assert entropy_gate(None, 0.0, 4) is None and entropy_gate(0.5, math.nan, 4) is None


@pytest.fixture
def classifier():
    return build_classifier("group-norm")


@pytest.fixture
def image():
    return pictures(1)[0]


def same(image, n, rng):
    """Return n views that equal the image."""
    return torch.from_numpy(image.transpose(2, 0, 1).copy()).float().div(255).expand(n, -1, -1, -1)


def mixed(image, n, rng):
    """Return the image, then n - 1 inverted copies."""
    views = same(image, n, rng).clone()
    views[1:] = 1 - views[1:]
    return views


GATED = pytest.mark.parametrize("method", ["memo", "tta"])


@GATED
def test_views_that_agree_with_the_source_are_answer_enough(classifier, image, method):
    source = mt.method("source", classifier).predict(image)
    options = {"n_views": 4, "augment": same, "early_views": 2}
    sure = mt.method(method, classifier, early_confidence=source.score * 0.99, **options).predict(image)
    assert sure.status == "gated" and "first 2 views agree" in sure.reason
    assert torch.equal(sure.logits, source.logits)
    limit = min(1, source.score * 1.01)
    unsure = mt.method(method, classifier, early_confidence=limit, **options).predict(image)
    plain = mt.method(method, classifier, n_views=4, augment=same).predict(image)
    assert unsure.status == plain.status != "gated"
    torch.testing.assert_close(unsure.logits, plain.logits)  # the view that is the image itself is known


@GATED
def test_one_view_that_says_otherwise_opens_the_gate(classifier, image, method):
    answers = classifier(classifier.normalise(mixed(image, 2, None))).argmax(dim=1)
    assert answers[0] != answers[1]
    options = {"n_views": 4, "augment": mixed, "early_confidence": 1e-6}
    assert mt.method(method, classifier, early_views=1, **options).predict(image).status == "gated"
    assert mt.method(method, classifier, early_views=2, **options).predict(image).status != "gated"


@GATED
def test_looking_at_views_first_changes_neither_them_nor_what_is_drawn_next(classifier, image, method):
    more = {"steps": 2, "lr": 0.05} if method == "memo" else {}
    plain = mt.method(method, classifier, n_views=6, **more)
    looked = mt.method(method, classifier, n_views=6, early_views=2, early_confidence=1.0, **more)
    assert torch.equal(looked.predict(image).logits, plain.predict(image).logits)


@GATED
def test_a_confident_source_needs_no_views(classifier, image, method):
    score = mt.method("source", classifier).predict(image).score
    drawn = []

    def count(image, n, rng):
        drawn.append(n)
        return torch.rand(n, 3, 8, 8)

    options = {"n_views": 4, "augment": count}
    sure = mt.method(method, classifier, skip_confidence=score * 0.99, **options).predict(image)
    assert sure.status == "gated" and "source confidence" in sure.reason and not drawn
    unsure = mt.method(method, classifier, skip_confidence=score * 1.01, **options).predict(image)
    assert unsure.status != "gated" and drawn == [4]


def test_threshold_is_a_share_of_the_largest_entropy(classifier, image):
    free = mt.Memo(classifier, n_views=4).predict(image)
    share = free.marginal_entropy / math.log(5)
    above = mt.Memo(classifier, n_views=4, threshold=share * 0.99).predict(image)
    below = mt.Memo(classifier, n_views=4, threshold=min(share * 1.01, 0.9999)).predict(image)
    assert above.adapted and torch.equal(above.logits, free.logits)
    assert below.status == "gated" and "marginal entropy" in below.reason
    assert torch.equal(below.logits, free.source.logits)


def weights_at_first_views(robust, image):
    """Return the head's bias at each forward pass of the first views."""
    head, seen = last_linear(robust.classifier), []

    def record(head, inputs):
        if len(inputs[0]) == robust.options.early_views:
            seen.append(head.bias.clone())

    hook = head.register_forward_pre_hook(record)
    robust.predict(image)
    hook.remove()
    return seen


def test_the_first_views_are_seen_with_the_weights_that_live_on(classifier):
    first, second = pictures(2)
    options = {"n_views": 4, "lr": 0.05, "early_views": 2, "early_confidence": 1.0}
    robust, bias = mt.Memo(classifier, reset="never", **options), last_linear(classifier).bias
    assert [torch.equal(seen, bias) for seen in weights_at_first_views(robust, first)] == [True]
    assert [torch.equal(seen, bias) for seen in weights_at_first_views(robust, second)] == [False]
    robust.reset()
    assert [torch.equal(seen, bias) for seen in weights_at_first_views(robust, second)] == [True]


@pytest.mark.parametrize("reset", ["never", "anchor"])
def test_a_point_that_is_gated_teaches_nothing(classifier, reset, monkeypatch):
    monkeypatch.setattr("memo_tta.methods.memory.ENTROPY_LIMIT", 1)
    easy, hard, last = sorted(
        pictures(3), key=lambda image: -mt.method("source", classifier).predict(image).score
    )
    limit = mt.method("source", classifier).predict(easy).score * 0.999
    options = {"n_views": 4, "lr": 0.05, "reset": reset}
    gated, plain = mt.Memo(classifier, skip_confidence=limit, **options), mt.Memo(classifier, **options)
    assert gated.predict(easy).status == "gated"  # so the others start from the source weights
    for image in (hard, last):
        assert torch.equal(gated.predict(image).logits, plain.predict(image).logits)
    plain.reset()
    plain.predict(easy)
    assert not torch.equal(plain.predict(hard).logits, mt.Memo(classifier, **options).predict(hard).logits)


def test_restore_stops_early_where_the_first_views_are_sure(classifier):
    robust = view_method("restore", classifier, n_views=14, early_confidence=1e-6)
    x, views = torch.randn(1, 3, 8, 8), torch.randn(14, 3, 8, 8)
    views[:2] = x  # so they agree with the source
    prediction = robust.predict_views(x, views)
    assert prediction.reason is not None
    assert prediction.reason.startswith("the first 2 views agree with the source, confidence 0.")
    assert torch.equal(prediction.logits, prediction.source.logits)
    unsure = view_method("restore", classifier, n_views=14, early_confidence=1).predict_views(x, views)
    assert unsure.status == "averaged"


def test_restore_looks_at_plain_views_first(classifier, image):
    seen = []
    robust = mt.method("restore", classifier, n_views=14, early_confidence=1)
    classifier.module.register_forward_hook(lambda _m, given, _o: seen.append(len(given[0])))
    robust.predict(image)
    assert seen == [1, 2, 14]


def test_nothing_is_restored_where_the_first_views_are_sure(classifier, image, monkeypatch):
    robust = mt.method("restore", classifier, n_views=14, early_confidence=1e-6)
    monkeypatch.setattr(Restore, "preview", lambda _self, image, n, _rng: torch.zeros(n, 3, 8, 8))
    monkeypatch.setattr(Restore, "__call__", lambda *_: pytest.fail("restored"))
    with torch.no_grad():
        bias = classifier.module.eval()(classifier.normalise(torch.zeros(1, 3, 8, 8)))
    monkeypatch.setattr(robust, "source_pass", lambda _batch: MeasuredPass(bias, None))
    assert robust.predict(image).reason.startswith("the first 2 views agree")


def test_what_a_preview_shows_does_not_change_what_is_drawn(classifier, image):
    looked = mt.method("restore", classifier, early_confidence=1).predict(image)
    straight = mt.method("restore", classifier, early_views=None).predict(image)
    assert looked.status == straight.status == "averaged" and torch.equal(looked.logits, straight.logits)


def test_memo_fast_is_a_row_whose_options_can_be_overruled(classifier):
    fast = mt.method("memo-fast", classifier).options
    assert (fast.skip_confidence, fast.n_views, fast.params) == (0.98, 16, "last:8")
    assert mt.method("memo-fast", classifier, skip_confidence=0.5).options.skip_confidence == 0.5
    assert mt.method("memo-fast", classifier, params="all").options.params == "all"
    assert mt.Memo(classifier).options.skip_confidence is None
    assert METHODS["memo-fast"].method is mt.Memo


LOGITS = torch.tensor([4.0, 1.0, 0.0, 0.0])  # probabilities 0.920, 0.046, 0.017, 0.017


@pytest.mark.parametrize(
    ("options", "shift", "expected"),
    [
        ({}, 0.0, None),
        ({"skip_confidence": 0.9}, None, "source confidence 0.920 >= 0.9"),
        ({"skip_confidence": 0.93}, 0.0, None),
        ({"skip_shift": 0.1}, 0.1, "shift 0.100 <= 0.1"),
        ({"skip_shift": 0.1}, 0.11, None),
        ({"skip_shift": 0.1}, None, None),  # not known to be small
        ({"skip_margin": 0.87}, None, "source margin 0.875 >= 0.870"),
        ({"skip_margin": 0.88}, None, None),  # not known to be clean
        ({"skip_margin": 0.88}, 0.21, None),
        ({"skip_margin": 1.0}, 0.2 * 0.87, "source margin 0.875 >= 0.870 at shift 0.174"),
        ({"skip_margin": 1.0}, 0.2 * 0.88, None),
        ({"skip_margin": 1.0}, float("nan"), None),
        ({"skip_margin": 1.0, "skip_shift": 0.5}, 0.4, "shift 0.400 <= 0.5"),
    ],
)
def test_the_source_gate_keeps_to_its_limits(options, shift, expected):
    reason = source_gate(GateOptions(**options), LOGITS, shift)
    assert reason is None if expected is None else reason is not None and reason.startswith(expected)


@pytest.mark.parametrize("method", ["memo", "restore"])
def test_only_what_is_shifted_is_adapted(method):
    classifier = build_classifier("batch-norm")
    images = pictures(6)
    shifts = [mt.method("source", classifier).predict(image).shift or 0.0 for image in images]
    limit = sorted(shifts)[2]
    robust = mt.method(method, classifier, n_views=2, skip_shift=limit)
    found = [robust.predict(image) for image in images]
    assert [p.status == "gated" for p in found] == [shift <= limit for shift in shifts]
    assert sum(p.status == "gated" for p in found) == 3


def test_views_that_a_gate_has_looked_at_are_no_more_than_a_clean_image_needs(monkeypatch):
    classifier, image = build_classifier("batch-norm"), pictures(1)[0]
    robust = mt.method("tta", classifier, n_views=6, early_views=2, early_confidence=1.0, clean_views=3)
    monkeypatch.setattr("memo_tta.methods.tta.cleanness", lambda _shift: 1.0)
    assert len(robust.explain(image).views) == 3
