"""Every method, the service and the ablations on bundled networks with group, batch and layer norm."""

import io
from typing import Any

import pytest
import torch
from PIL import Image

import memo_tta as mt
from memo_tta.cli.demo import MODELS
from memo_tta.data.sample_images import load_sample
from memo_tta.methods import METHODS, Method
from memo_tta.models.batch_norm import norm_layers
from tests.nets import everything, last_linear
from tests.service.live import build_served_model, live_service

pytestmark = pytest.mark.filterwarnings("ignore::memo_tta.MemoWarning")

MIXES = {"bn1", "bn"}  # batch-norm statistics, and nothing else
FROM_FEATURES = {"t3a", "lame", "recenter"}  # change no weight
IMAGES = [load_sample()[position].image for position in range(3)]
PAIRS = [(method, model) for model in MODELS for method in METHODS if method != "ttt"]


def build(method: str, model: str) -> Method[Any]:
    """Build a method with strong steps on few views, and no gate."""
    declared = METHODS[method].declarations
    gates = dict.fromkeys(("early_views", "skip_confidence", "skip_margin", "skip_shift"))
    learning = {"lr": 0.05, "entropy_limit": 1.0, "redundancy": 1.0, "recover_below": 0, "drop_limit": -1}
    options = {"n_views": 4, "teacher_views": 4, **learning, **gates}
    return mt.method(method, mt.load(model), **{k: v for k, v in options.items() if k in declared})


def test_the_three_kinds_of_normalisation_are_there():
    kinds = [{type(layer).__name__ for layer in norm_layers(mt.load(model).module)} for model in MODELS]
    assert kinds == [{"GroupNorm"}, {"BatchNorm2d"}, {"LayerNorm"}]


@pytest.mark.parametrize(("method", "model"), PAIRS)
def test_a_trained_network_comes_back_bit_for_bit(method, model):
    robust = build(method, model)
    before = everything(robust.classifier.module)
    robust.predict(IMAGES)  # an online method uses what it learnt from the second batch on
    predictions = robust.predict(IMAGES)
    assert everything(robust.classifier.module) == before
    adapts = METHODS[method].method.needs_gradients or method in FROM_FEATURES
    adapts = adapts or (method in MIXES and model == "resnet20-bn")
    for prediction in predictions:
        assert prediction.adapted == adapts and prediction.probabilities.isfinite().all()
        assert torch.equal(prediction.logits, prediction.source.logits) == (
            method == "source" or (method in MIXES and not adapts)
        )


@pytest.mark.parametrize(("method", "model"), PAIRS)
def test_a_trained_network_comes_back_after_an_error(method, model):
    robust = build(method, model)
    calls = []

    def fail_at_the_second_pass(*_):
        calls.append(None)
        if len(calls) == 2 or robust.batch_points > 1:
            raise TimeoutError

    last_linear(robust.classifier).register_forward_hook(fail_at_the_second_pass)
    before = everything(robust.classifier.module)
    with pytest.raises(TimeoutError):
        robust.predict(IMAGES)
    assert everything(robust.classifier.module) == before


@pytest.mark.parametrize("model", MODELS)
def test_the_service_answers_as_the_method_does(model):
    file = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(file, "PNG")
    classifier = mt.load(model)
    served = build_served_model(classifier, options={"memo": {"n_views": 8}})
    with live_service(served) as service:
        reply = service.predict(file.getvalue(), method="memo")
    expected = mt.Memo(classifier, n_views=8).predict(IMAGES[0])
    assert reply.status == 200 and reply.json["label"] == expected.label
    assert reply.json["score"] == pytest.approx(expected.score, abs=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_the_ablations_run(model, memo, tmp_path):
    words = ("evaluate", "sample", "--model", model, "--limit", 4, "--workers", 1)
    for name, choice in {
        "objectives": ("--methods", "source,memo,memo-pce,memo-ce"),
        "standard": ("--methods", "source,memo", "--option", "augment=standard"),
    }.items():
        code, _, error = memo(*words, *choice, "--out", tmp_path / name)
        assert code == 0, error
    code, text, _ = memo("report", tmp_path / "objectives")
    assert code == 0 and "memo-pce" in text and "memo-ce" in text
