import numpy as np
import pytest
import torch

from memo_tta.models.resnet import resnet18, resnet50
from memo_tta.models.resnet_cifar import ResNet26
from memo_tta.models.zoo import load

MODELS = {
    "resnet26_gn": (ResNet26, (4, 3, 32, 32)),
    "resnet18": (resnet18, (2, 3, 224, 224)),
    "resnet50": (resnet50, (2, 3, 224, 224)),
}


@pytest.mark.parametrize("name", MODELS)
def test_keys_and_shapes_are_the_published_ones(reference, name):
    build, _ = MODELS[name]
    published = {row["key"]: row["shape"] for row in reference.json(f"keys_{name}")}
    assert {key: list(value.shape) for key, value in build().state_dict().items()} == published


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_are_the_published_ones(reference, name, dtype):
    build, shape = MODELS[name]
    module = build()
    reference.rule_weights(module)
    module.to(dtype).eval()
    with torch.no_grad():
        logits = module(reference.rule_input(name, shape).to(dtype)).double().numpy()
    rounding = reference.json("models")[name]["max_abs_f32_vs_f64"]
    tolerance = 1e-10 if dtype == torch.float64 else 3 * rounding
    truth = reference.arrays("model_logits")[f"{name}__logits_f64"]
    np.testing.assert_allclose(logits, truth, rtol=0, atol=tolerance)


def test_resnet26_with_the_authors_weights(reference):
    classifier = load("resnet26", weights=reference.path("checkpoints/resnet26_gn.npz"))
    vectors = reference.arrays("resnet26_gn_real")
    assert sum(p.numel() for p in classifier.module.parameters()) == 366_938
    with torch.no_grad():
        logits = classifier(torch.stack([classifier.point(image).x for image in vectors["images"]]))
    rounding = reference.json("models")["resnet26_gn_real"]["max_abs_f32_vs_f64"]
    np.testing.assert_allclose(logits.double().numpy(), vectors["logits_f64"], rtol=0, atol=3 * rounding)
