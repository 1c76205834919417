"""Guarantees that hold for every method and every kind of model."""

import signal
import threading
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError
from memo_tta.methods import METHODS, Method, episode
from tests.nets import (
    CLASSES,
    NETS,
    build_classifier,
    everything,
    large_classifier,
    large_image,
    last_linear,
    pictures,
)

pytestmark = pytest.mark.filterwarnings("ignore::memo_tta.MemoWarning")

FEW = {"n_views": 4, "teacher_views": 4}  # for the methods that draw views
STRONG = {"lr": 0.05}  # for the methods that adapt weights
ALL_POINTS = {"entropy_limit": 1.0, "drop_limit": -1.0}  # for those that learn from reliable points only
ADAPTS_NOTHING = {"source", "tta", "restore", "zero"}
RELIABLE = {"eta", "sar", "deyo"}
NEEDS_NORM = {"tent", "tent-episodic", "tent-bs1", *RELIABLE}
MIXES_ONLY = {"bn", "bn1"}
FROM_FEATURES = {"t3a", "lame", "recenter"}  # change no weight
CONTINUAL = {"memo-never": {"reset": "never"}, "memo-anchor": {"reset": "anchor"}}  # not in METHODS

PAIRS = [
    (m, n)
    for m in [*METHODS, *CONTINUAL]
    for n in NETS
    if (m == "ttt") == (n == "rotation") and not (m in NEEDS_NORM | {"memo-anchor"} and n == "no-norm")
]
pairs = pytest.mark.parametrize(("method", "net"), PAIRS)
updating_pairs = pytest.mark.parametrize(
    ("method", "net"), [(m, n) for m, n in PAIRS if m not in ADAPTS_NOTHING | MIXES_ONLY | FROM_FEATURES]
)


def build(method: str, classifier: mt.Classifier, **options: Any) -> Method[Any]:
    options = {**CONTINUAL.get(method, {}), **options}
    method = "memo" if method in CONTINUAL else method
    names = METHODS[method].declarations
    for few in (FEW, STRONG, ALL_POINTS):
        options = {**{k: v for k, v in few.items() if k in names}, **options}
    return METHODS[method](classifier, **options)


def mixes(net: str) -> bool:
    return net in ("batch-norm", "dropout", "bfloat16")


@pairs
def test_everything_comes_back_bit_for_bit(method, net):
    classifier = build_classifier(net)
    before = everything(classifier.module)
    robust = build(method, classifier)
    predictions: list[mt.Prediction] = []
    for _ in range(2):  # online methods use what they learnt from the second batch on
        predictions = robust.predict(pictures(3))
        assert everything(classifier.module) == before
    for prediction in predictions:
        assert prediction.adapted == (
            method not in ADAPTS_NOTHING and (method not in MIXES_ONLY or mixes(net))
        )
        assert prediction.adapted == (prediction.reason is None) == (prediction.status == "adapted")
        if prediction.adapted:
            assert not torch.allclose(prediction.logits, prediction.source.logits, atol=1e-4)
    robust.reset()
    assert everything(classifier.module) == before


class Stop(Exception):
    pass


def raise_stop(*_):
    raise Stop


def press_ctrl_c(*_):
    signal.raise_signal(signal.SIGINT)


breaks = pytest.mark.parametrize(("act", "error"), [(raise_stop, Stop), (press_ctrl_c, KeyboardInterrupt)])


def check_break(robust, register, act, error):
    """Check that an exception in a hook, installed by `register`, changes neither module nor method."""
    module, images = robust.classifier.module, pictures(2)
    expected = robust.predict(images)
    robust.reset()
    hook = register(act)
    before = everything(module)
    with pytest.raises(error):
        robust.predict(images)
    assert everything(module) == before
    hook.remove()
    for ours, wanted in zip(robust.predict(images), expected, strict=True):
        assert torch.equal(ours.logits, wanted.logits)


@pairs
@breaks
def test_everything_comes_back_after_a_break_in_forward(method, net, act, error):
    classifier = build_classifier(net)
    check_break(build(method, classifier), last_linear(classifier).register_forward_hook, act, error)


@updating_pairs
@breaks
def test_everything_comes_back_after_a_break_in_backward(method, net, act, error):
    classifier = build_classifier(net)
    check_break(build(method, classifier), last_linear(classifier).register_full_backward_hook, act, error)


@pytest.mark.parametrize(("method", "net"), [(m, n) for m, n in PAIRS if m.startswith(("memo", "tt"))])
@breaks
def test_everything_comes_back_after_a_break_in_the_augmentation(method, net, act, error):
    classifier = build_classifier(net)
    robust = build(method, classifier, augment=lambda *_: act())
    before = everything(classifier.module)
    with pytest.raises(error):
        robust.predict(pictures(1))
    assert everything(classifier.module) == before


@pairs
@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, SystemExit])
def test_an_interrupt_while_restoring_does_not_stop_it(method, net, error, monkeypatch):
    classifier = build_classifier(net)
    robust, before = build(method, classifier), everything(classifier.module)
    restore = episode._restore_buffers
    raised = []

    def interrupted_once(*what):
        if not raised:
            raised.append(True)
            raise error
        restore(*what)

    monkeypatch.setattr(episode, "_restore_buffers", interrupted_once)
    with pytest.raises(error):
        robust.predict(pictures(1))
    assert everything(classifier.module) == before


@pairs
def test_adaptation_runs_in_eval_mode_and_patches_no_class(method, net):
    classifier = build_classifier(net)
    kinds = {type(m) for m in classifier.module.modules()} | {nn.BatchNorm2d, nn.BatchNorm1d}
    before = {kind: dict(vars(kind)) for kind in kinds}
    seen = []

    def record(module, _):
        seen.append(module.training)
        assert all(dict(vars(kind)) == before[kind] for kind in kinds)

    robust = build(method, classifier)
    hooks = [m.register_forward_pre_hook(record) for m in classifier.module.modules()]
    robust.predict(pictures(2))
    for hook in hooks:
        hook.remove()
    assert seen and not any(seen)
    assert all(dict(vars(kind)) == before[kind] for kind in kinds)


@pairs
def test_same_seed_same_answer_whatever_came_before(method, net):
    first, other = pictures(2)
    fresh = build(method, build_classifier(net)).predict(first)
    robust = build(method, build_classifier(net))
    robust.predict([other, first, other])
    robust.reset()
    assert torch.equal(robust.predict(first).logits, fresh.logits)


NOT_ALONE = {"bn", "cotta", *FROM_FEATURES, *RELIABLE, "tent", "tent-episodic", "tent-all", *CONTINUAL}
EPISODIC_POINTS = [(m, n) for m, n in PAIRS if m not in NOT_ALONE]


@pytest.mark.parametrize(("method", "net"), EPISODIC_POINTS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_batch_is_each_point_on_its_own(method, net, optimizer):
    robust = build(method, build_classifier(net))
    if robust.needs_gradients:
        robust = build(method, build_classifier(net), optimizer=optimizer, steps=2)
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    together = robust(x)
    assert together.shape == (4, CLASSES)
    each = torch.cat([robust(x[i : i + 1]) for i in (3, 1, 0, 2)])[[2, 1, 3, 0]]
    rounding = 1e-5 if robust.batch_points > 1 else 0
    torch.testing.assert_close(together, each, rtol=rounding, atol=rounding)


@pairs
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_calling_works_in_every_gradient_mode(method, net, mode):
    points = pictures(3)
    expected = torch.stack([p.logits for p in build(method, build_classifier(net)).predict(points)])
    robust = build(method, build_classifier(net))
    before = everything(robust.classifier.module)
    with mode():
        # Built inside: a tensor created under inference_mode is the hardest case.
        pixels = torch.from_numpy(np.stack(points)).permute(0, 3, 1, 2) / 255
        logits = robust(robust.classifier.normalise(pixels))
        assert torch.is_grad_enabled() == (mode is torch.enable_grad)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    assert not logits.requires_grad
    assert everything(robust.classifier.module) == before


class Poison(torch.autograd.Function):
    """The identity, with a gradient of NaN."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * float("nan")


@updating_pairs
@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_what_is_not_finite_falls_back_to_the_source_prediction(method, net, broken):
    classifier = build_classifier(net)
    robust = build(method, classifier)
    source = METHODS["source"](classifier).predict(pictures(2))

    def spoil(module, inputs, output):
        if torch.is_grad_enabled():
            return output * float("nan") if broken == "loss" else Poison.apply(output)
        return output

    # The rotation head is not part of forward.
    spoilt = classifier.module.get_submodule("rotation") if method == "ttt" else classifier.module
    spoilt.register_forward_hook(spoil)
    before = everything(classifier.module)
    for prediction, plain in zip(robust.predict(pictures(2)), source, strict=True):
        assert not prediction.adapted and "not finite" in (prediction.reason or "")
        torch.testing.assert_close(prediction.logits, plain.logits)
        assert prediction.probabilities.isfinite().all()
    assert everything(classifier.module) == before


@updating_pairs
def test_steps_that_blow_up_the_weights_never_give_nan(method, net):
    classifier = build_classifier(net)
    before, robust = everything(classifier.module), build(method, classifier, lr=1e37, steps=2)
    for prediction in robust.predict(pictures(2)) + robust.predict(pictures(2)):
        assert prediction.logits.isfinite().all()
        assert prediction.adapted or torch.equal(prediction.logits, prediction.source.logits)
    assert everything(classifier.module) == before


@pairs
def test_a_model_that_answers_nan_still_gives_probabilities(method, net):
    classifier = build_classifier(net)
    robust = build(method, classifier)
    with torch.no_grad():
        for parameter in classifier.module.parameters():
            parameter.fill_(float("nan"))
    prediction = robust.predict(pictures(1)[0])
    assert prediction.status == "not_finite" and "not finite" in (prediction.reason or "")
    assert prediction.marginal_entropy is None
    assert prediction.probabilities.sum() == pytest.approx(1)


@pairs
@given(seed=st.integers(0, 2**32), data=st.integers(0, 2**16), n=st.integers(1, 3))
def test_random_weights_and_points_come_back(method, net, seed, data, n):
    classifier = build_classifier(net, seed=data)
    before = everything(classifier.module)
    for prediction in build(method, classifier, seed=seed).predict(pictures(n, data)):
        assert prediction.probabilities.sum() == pytest.approx(1)
        assert 0 <= prediction.entropy <= np.log(CLASSES) + 1e-9
    assert everything(classifier.module) == before


@pytest.mark.parametrize("method", sorted(NEEDS_NORM))
def test_tent_needs_a_norm_layer(method):
    with pytest.raises(ConfigError, match="'norm' matches none of the 4 parameters"):
        METHODS[method](build_classifier("no-norm"))


def test_threads_that_share_a_module_take_turns():
    classifier = build_classifier("batch-norm")
    before, images = everything(classifier.module), pictures(8)
    expected = [p.logits for p in build("memo", classifier).predict(images)]
    answers: list[list[mt.Prediction]] = [[], []]

    def work(place):
        answers[place] = build("memo", classifier).predict(images)

    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answer in answers:
        assert all(torch.equal(p.logits, logits) for p, logits in zip(answer, expected, strict=True))
    assert everything(classifier.module) == before


def test_a_graph_that_the_user_holds_stays_valid():
    classifier = build_classifier("group-norm")
    x = torch.randn(2, 3, 8, 8)
    loss = classifier.module(x).sum()
    build("memo", classifier).predict(pictures(1))
    loss.backward()


LARGE_PASSES = {"restore": 4, "memo": 3}  # of the views, of the adapted image, of the source


@pytest.mark.parametrize(
    ("method", "failing"), [(m, n) for m, passes in LARGE_PASSES.items() for n in range(1, passes + 1)]
)
def test_a_large_image_that_fails_in_any_pass_leaves_nothing_behind(method, failing):
    """Hooks that measure and hooks that mix are nested there, over several passes."""
    classifier, passes = large_classifier(), count(1)
    options = (
        {"skip_margin": None, "clean_views": None}
        if method == "restore"
        else {"clean_strength": None, "predict": "point", "n_views": 4}
    )
    robust = mt.method(method, classifier, **{"skip_margin": None, **options})
    norm = classifier.module.get_submodule("4")
    before = everything(classifier.module)
    handle = norm.register_forward_hook(lambda *_: 1 / 0 if next(passes) == failing else None)
    with pytest.raises(ZeroDivisionError):
        robust.predict(large_image())
    handle.remove()
    assert everything(classifier.module) == before
    robust.predict(large_image())
    assert everything(classifier.module) == before
