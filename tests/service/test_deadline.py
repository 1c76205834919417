"""Interrupted adaptation returns the source prediction and leaves the weights unchanged."""

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
from memo_tta.service.deadline import (
    AdaptationTimes,
    Cancelled,
    DeadlineExceeded,
    DeadlineHooks,
    never_cancelled,
)
from memo_tta.service.handlers import Handlers
from memo_tta.service.replica import PredictionRequest
from tests.nets import NETS, SIZE, build_classifier, everything, pictures
from tests.service.live import build_replica, build_served_model, image_file

IMAGE = pictures(1)[0]
PAST = 0.0  # perf_counter started earlier


def request(deadline: float, image: np.ndarray = IMAGE) -> PredictionRequest:
    return PredictionRequest(
        image=image, method="memo", options={"n_views": 4, "lr": 0.05}, deadline=deadline
    )


@pytest.mark.parametrize("net", NETS)
def test_no_time_gives_the_source_answer(net):
    classifier = build_classifier(net)
    replica = build_replica(build_served_model(classifier))
    result = replica.predict(request(PAST))
    expected = mt.methods.METHODS["source"](build_classifier(net)).predict(pictures(1)[0])
    assert (result.prediction.adapted, result.prediction.status) == (False, "deadline")
    assert torch.equal(result.prediction.logits, expected.logits) and result.thumbnails == []
    assert replica.is_intact and replica.predict(request(inf)).prediction.adapted


class Clock:
    """A clock that jumps past the deadline after a number of calls."""

    def __init__(self, calls: int):
        self.left = calls

    def __call__(self) -> float:
        self.left -= 1
        return 2.0 if self.left < 0 else 1.0


def hooked_passes(robust: mt.Memo, image: np.ndarray) -> tuple[int, int]:
    """Count the forward and backward passes through layers with hooks in one prediction."""
    forward, backward = list[int](), list[int]()

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
    hooks = DeadlineHooks(module)
    before, n_interrupted = everything(module), 0
    with monkeypatch.context() as patch:
        for calls in range(1, 200):
            patch.setattr(deadline, "perf_counter", Clock(calls))
            try:
                with hooks.enforce(1.5, never_cancelled):
                    robust.predict(image)
                break
            except DeadlineExceeded:
                n_interrupted += 1
            assert everything(module) == before
    forward, backward = hooked_passes(robust, image)
    assert n_interrupted == forward + backward and backward > 1
    without_hooks = mt.Memo(build_classifier(net), n_views=3, lr=0.05).predict(image)
    assert torch.equal(robust.predict(image).logits, without_hooks.logits)


def test_nobody_waiting_ends_it_too():
    hooks = DeadlineHooks(module := nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    is_cancelled = iter([False, False, True])
    with pytest.raises(Cancelled), hooks.enforce(inf, lambda: next(is_cancelled)):
        module(torch.ones(1, 2))
    module(torch.ones(1, 2))  # no longer enforced


def test_what_took_long_is_not_begun_with_little_time_left(monkeypatch):
    now = 100.0
    monkeypatch.setattr(deadline, "perf_counter", lambda: now)
    times = AdaptationTimes()
    assert times.fits("memo", 0.01) and not times.fits("memo", -0.01), (
        "a kind that was never measured may start"
    )
    for seconds in (9.0, 1.0, 1.0):
        times.add("memo", seconds)
    assert times.fits("memo", 1.2) and not times.fits("memo", 1.0), "one slow adaptation does not count"
    assert times.fits("tta", 0.01)
    for _ in range(5):
        times.add("memo", 3.0)
    assert not times.fits("memo", 2.0)
    now += deadline.STALE + 1
    assert times.fits("memo", 2.0), "old durations do not count"
    for _ in range(5):
        times.add("memo", 0.5)
    assert times.fits("memo", 0.6)


def test_an_adaptation_that_would_take_too_long_is_not_begun(monkeypatch):
    times = AdaptationTimes()
    replica = build_replica(build_served_model(build_classifier("group-norm")), times)
    kind = ("memo", 4, False)
    for _ in range(5):
        times.add(kind, 1000.0)
    served_model, built = replica._served_model, list[str]()
    build = served_model.build_method
    monkeypatch.setattr(
        served_model, "build_method", lambda name, *rest: built.append(name) or build(name, *rest)
    )
    assert replica.predict(request(perf_counter() + 900)).prediction.status == "deadline"
    assert built == ["source"]
    assert replica.predict(request(perf_counter() + 2000)).prediction.adapted


@pytest.mark.parametrize("kind", ["form", "json", "page"])
def test_reading_a_request_counts_towards_its_deadline(kind, open_client, monkeypatch):
    client, now, deadlines = open_client(deadline_ms=2000), [100.0], list[float]()

    def slowly(read):
        def read_slowly(*arguments):
            now[0] += 1.5
            return read(*arguments)

        return read_slowly

    async def run(_handlers, prediction_request, *_):
        deadlines.append(prediction_request.deadline)
        raise ApiError("busy")

    monkeypatch.setattr(Handlers, "run", run)
    for module in ("app", "handlers", "page.routes"):
        monkeypatch.setattr(f"memo_tta.service.{module}.perf_counter", lambda: now[0])
    for path, name in (("handlers", "read_form"), ("handlers", "read_json"), ("page.routes", "read_form")):
        module = import_module(f"memo_tta.service.{path}")
        monkeypatch.setattr(module, name, slowly(getattr(module, name)))
    if kind == "json":
        client.post("/v1/predict", json={"image": base64.b64encode(image_file()).decode()})
    else:
        path = "/v1/predict" if kind == "form" else "/page/predict"
        client.post(path, files={"image": ("a.png", image_file(), "image/png")})
    assert deadlines == [102.0] and now == [101.5]


def test_over_http_a_short_deadline_says_so(open_client):
    client = open_client()
    reply = client.post("/v1/predict", files={"image": image_file()}, data={"deadline_ms": "1"}).json()
    assert (reply["adapted"], reply["status"]) == (False, "deadline")
    assert reply["top"] == reply["source"]["top"]
    text = client.get("/metrics").text
    assert 'memo_predictions_total{method="memo",status="deadline"} 1.0' in text


def test_a_logit_that_is_not_finite_falls_back_and_is_counted(open_client):
    classifier = build_classifier("group-norm")
    client = open_client(classifier, options={"memo": {"n_views": 4, "lr": 1e30}})
    reply = client.post("/v1/predict", files={"image": image_file()}).json()
    assert not reply["adapted"] and "not finite" in reply["reason"]
    assert reply["top"] == reply["source"]["top"]
    assert 'memo_predictions_total{method="memo",status="not_finite"} 1.0' in client.get("/metrics").text


def test_the_image_of_the_warm_up_fits_any_model():
    classifier = build_classifier("no-norm")
    replica = build_replica(build_served_model(classifier))
    assert replica.preview(request(PAST, np.zeros((3, 200, 3), np.uint8))).shape == (SIZE, SIZE, 3)
