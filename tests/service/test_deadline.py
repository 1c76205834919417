"""Adaptation that is called off: the answer is the source's, and the weights are as before."""

import base64
from importlib import import_module
from math import inf
from time import perf_counter

import numpy as np
import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.service import deadline
from memo_tta.service.api_errors import ApiError
from memo_tta.service.deadline import Cancelled, Costs, DeadlineExceeded, DeadlineHooks
from memo_tta.service.handlers import Handlers
from memo_tta.service.replica import PredictionRequest, Replica
from tests.nets import NETS, SIZE, build_classifier, everything, pictures
from tests.service.live import build_served, png

PAST = 0.0  # perf_counter counts from some earlier moment


def ask(until: float, **others) -> PredictionRequest:
    return PredictionRequest(
        image=pictures(1)[0], method="memo", options={"n_views": 4, "lr": 0.05}, until=until, **others
    )


@pytest.mark.parametrize("net", NETS)
def test_no_time_gives_the_source_answer(net):
    classifier = build_classifier(net)
    replica = Replica(build_served(classifier), Costs())
    answer = replica.predict(ask(PAST))
    expected = mt.methods.METHODS["source"](build_classifier(net)).predict(pictures(1)[0])
    assert (answer.prediction.adapted, answer.prediction.status) == (False, "deadline")
    assert torch.equal(answer.prediction.logits, expected.logits) and answer.views == []
    assert replica.is_intact and replica.predict(ask(inf)).prediction.adapted


class Clock:
    """A clock that jumps past the deadline at the n-th look."""

    def __init__(self, looks: int):
        self.left = looks

    def __call__(self) -> float:
        self.left -= 1
        return 2.0 if self.left < 0 else 1.0


def passes(robust: mt.Memo, image: np.ndarray) -> tuple[int, int]:
    """How often layers that are watched are gone through in one prediction, forward and backward."""
    forward, backward = [], []

    def count(_layer, _inputs, output):
        forward.append(1)
        if output.requires_grad:
            output.register_hook(lambda _: backward.append(1))

    layers = [layer for layer in robust.classifier.module.modules() if layer._forward_pre_hooks]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    robust.predict(image)
    for hook in hooks:
        hook.remove()
    return len(forward), len(backward)


@pytest.mark.parametrize("net", ["group-norm", "batch-norm", "transformer"])
def test_work_ends_at_any_layer_forward_or_backward_and_nothing_is_left_changed(net, monkeypatch):
    robust = mt.Memo(build_classifier(net), n_views=3, lr=0.05)
    module, image = robust.classifier.module, pictures(1)[0]
    watch = DeadlineHooks(module)
    before, ended = everything(module), 0
    with monkeypatch.context() as patch:
        for looks in range(1, 200):
            patch.setattr(deadline, "perf_counter", Clock(looks))
            try:
                with watch.over(1.5, lambda: True):
                    robust.predict(image)
                break
            except DeadlineExceeded:
                ended += 1
            assert everything(module) == before
    forward, backward = passes(robust, image)
    assert ended == forward + backward and backward > 1
    unwatched = mt.Memo(build_classifier(net), n_views=3, lr=0.05).predict(image)
    assert torch.equal(robust.predict(image).logits, unwatched.logits)


def test_nobody_waiting_ends_it_too():
    watch = DeadlineHooks(module := nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    wanted = iter([True, True, False])
    with pytest.raises(Cancelled), watch.over(inf, lambda: next(wanted)):
        module(torch.ones(1, 2))
    module(torch.ones(1, 2))  # the watch is over


def test_what_took_long_is_not_begun_with_little_time_left(monkeypatch):
    now = 100.0
    monkeypatch.setattr(deadline, "perf_counter", lambda: now)
    costs = Costs()
    assert costs.fits("memo", 0.01) and not costs.fits("memo", -0.01), "the first may try"
    for seconds in (9.0, 1.0, 1.0):
        costs.took("memo", seconds)
    assert costs.fits("memo", 1.2) and not costs.fits("memo", 1.0), "one slow moment is not the rule"
    assert costs.fits("tta", 0.01)
    for _ in range(5):
        costs.took("memo", 3.0)
    assert not costs.fits("memo", 2.0)
    now += deadline.STALE + 1
    assert costs.fits("memo", 2.0), "tried again after a while"
    for _ in range(5):
        costs.took("memo", 0.5)
    assert costs.fits("memo", 0.6)


def test_an_adaptation_that_would_take_too_long_is_not_begun(monkeypatch):
    costs = Costs()
    replica = Replica(build_served(build_classifier("group-norm")), costs)
    kind = ("memo", 4, False)
    for _ in range(5):
        costs.took(kind, 1000.0)
    served, built, build = replica._served, [], replica._served.build
    monkeypatch.setattr(served, "build", lambda name, *rest: built.append(name) or build(name, *rest))
    assert replica.predict(ask(perf_counter() + 900)).prediction.status == "deadline"
    assert built == ["source"]
    assert replica.predict(ask(perf_counter() + 2000)).prediction.adapted


@pytest.mark.parametrize("kind", ["form", "json", "page"])
def test_reading_a_request_counts_towards_its_deadline(kind, open_client, monkeypatch):
    client, now, asked = open_client(deadline_ms=2000), [100.0], []

    def slowly(read):
        def reading(*given):
            now[0] += 1.5
            return read(*given)

        return reading

    async def answer(_desk, ask, *_):
        asked.append(ask.until)
        raise ApiError("busy")

    monkeypatch.setattr(Handlers, "answer", answer)
    for place in ("app", "handlers", "page"):
        monkeypatch.setattr(f"memo_tta.service.{place}.perf_counter", lambda: now[0])
    for place, name in (("handlers", "read_form"), ("handlers", "read_json"), ("page", "read_form")):
        module = import_module(f"memo_tta.service.{place}")
        monkeypatch.setattr(module, name, slowly(getattr(module, name)))
    if kind == "json":
        client.post("/v1/predict", json={"image": base64.b64encode(png()).decode()})
    else:
        path = "/v1/predict" if kind == "form" else "/page/predict"
        client.post(path, files={"image": ("a.png", png(), "image/png")})
    assert asked == [102.0] and now == [101.5]


def test_over_http_a_short_deadline_says_so(open_client):
    client = open_client()
    reply = client.post("/v1/predict", files={"image": png()}, data={"deadline_ms": "1"}).json()
    assert (reply["adapted"], reply["status"]) == (False, "deadline")
    assert reply["top"] == reply["source"]["top"]
    text = client.get("/metrics").text
    assert 'memo_predictions_total{method="memo",status="deadline"} 1.0' in text


def test_a_logit_that_is_not_finite_falls_back_and_is_counted(open_client):
    classifier = build_classifier("group-norm")
    client = open_client(classifier, options={"memo": {"n_views": 4, "lr": 1e30}})
    reply = client.post("/v1/predict", files={"image": png()}).json()
    assert not reply["adapted"] and "not finite" in reply["reason"]
    assert reply["top"] == reply["source"]["top"]
    assert 'memo_predictions_total{method="memo",status="not_finite"} 1.0' in client.get("/metrics").text


def test_the_image_of_the_warm_up_fits_any_model():
    classifier = build_classifier("no-norm")
    replica = Replica(build_served(classifier), Costs())
    assert replica.picture(np.zeros((3, 200, 3), np.uint8), None).shape == (SIZE, SIZE, 3)
