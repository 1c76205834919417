from hashlib import sha256

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from memo_tta.models.networks.cct2 import CCT2
from memo_tta.models.networks.efficientnet_lite import (
    SameConv2d,
    efficientnet_lite0,
    efficientnet_lite1,
    efficientnet_lite2,
)
from memo_tta.models.networks.mobilenet_v2 import mobilenet_v2
from memo_tta.models.networks.resnet import resnet18, resnet50, resnext101_32x8d
from memo_tta.models.networks.resnet20_bn import ResidualBlock, ResNet20
from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.models.networks.rvt import rvt_small_plus
from memo_tta.models.zoo import load
from tests.conftest import Vectors

MODELS = {
    "resnet26_gn": (ResNet26, (4, 3, 32, 32)),
    "resnet18": (resnet18, (2, 3, 224, 224)),
    "resnet50": (resnet50, (2, 3, 224, 224)),
    "resnext101_32x8d": (resnext101_32x8d, (2, 3, 224, 224)),
    "rvt_small_plus": (rvt_small_plus, (2, 3, 224, 224)),
    "efficientnet_lite0": (efficientnet_lite0, (2, 3, 224, 224)),
}

# Parameters, and a digest of the keys and shapes, of the published weights files.
PUBLISHED = {
    mobilenet_v2: (3_504_872, "b37e2a9130e6341b"),
    efficientnet_lite1: (5_416_680, "3eccbe8575423ea3"),
    efficientnet_lite2: (6_092_072, "032375d3a3a18cba"),
}


@pytest.mark.parametrize("name", MODELS)
def test_keys_and_shapes_are_the_published_ones(golden, name):
    build, _ = MODELS[name]
    published = {row["key"]: row["shape"] for row in golden.json(f"keys_{name}")}
    assert {key: list(value.shape) for key, value in build().state_dict().items()} == published


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_are_the_published_ones(golden, name, dtype):
    build, shape = MODELS[name]
    module = build()
    golden.rule_weights(module)
    module.to(dtype).eval()
    with torch.no_grad():
        logits = module(golden.rule_input(name, shape).to(dtype)).double().numpy()
    rounding = golden.json("models")[name]["max_abs_f32_vs_f64"]
    tolerance = 1e-10 if dtype == torch.float64 else 3 * rounding
    truth = golden.arrays("model_logits")[f"{name}__logits_f64"]
    np.testing.assert_allclose(logits, truth, rtol=0, atol=tolerance)


@pytest.mark.parametrize("build", PUBLISHED)
def test_keys_and_shapes_have_the_published_digest(build):
    module = build()
    lines = sorted(f"{key} {list(value.shape)}" for key, value in module.state_dict().items())
    digest = sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert (sum(p.numel() for p in module.parameters()), digest) == PUBLISHED[build]


@pytest.mark.parametrize("build", [mobilenet_v2, efficientnet_lite1, efficientnet_lite2])
def test_any_number_of_classes(build):
    with torch.no_grad():
        assert build(num_classes=7).eval()(torch.randn(1, 3, 65, 97)).shape == (1, 7)


def test_rvt_keeps_the_axis_of_a_batch_of_one():
    module, x = rvt_small_plus(num_classes=7).eval(), torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        alone, together = module(x[:1]), module(x)
    assert alone.shape == (1, 7)
    torch.testing.assert_close(alone[0], together[0])


@pytest.mark.parametrize("kernel", [3, 5])
def test_tensorflow_pads_odd_sizes_evenly_and_even_sizes_more_at_the_end(kernel):
    conv, x = SameConv2d(1, 1, kernel, stride=2), torch.randn(1, 1, 9, 12)
    rows, before = kernel // 2, kernel // 2 - 1
    by_hand = torch.zeros(1, 1, 9 + 2 * rows, 12 + 2 * rows - 1)
    by_hand[:, :, rows : rows + 9, before : before + 12] = x
    with torch.no_grad():
        assert conv(x).shape == (1, 1, 5, 6)
        torch.testing.assert_close(conv(x), F.conv2d(by_hand, conv.weight, conv.bias, stride=2))


def test_resnet26_with_the_authors_weights(golden, reference):
    classifier = load("resnet26", weights=reference / "checkpoints/resnet26_gn.npz")
    vectors = Vectors(reference / "golden").arrays("resnet26_gn_real")
    assert sum(p.numel() for p in classifier.module.parameters()) == 366_938
    with torch.no_grad():
        logits = classifier(torch.stack([classifier.point(image).x for image in vectors["images"]]))
    rounding = golden.json("models")["resnet26_gn_real"]["max_abs_f32_vs_f64"]
    np.testing.assert_allclose(logits.double().numpy(), vectors["logits_f64"], rtol=0, atol=3 * rounding)


@pytest.mark.parametrize(("build", "parameters"), [(ResNet20, 269_722), (CCT2, 283_723)])
def test_small_networks_have_the_published_size(build, parameters):
    """0.27 M in He et al. (2016); 0.28 M for CCT-2/3x2 in Hassani et al. (2021)."""
    model = build()
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_a_shortcut_of_resnet20_takes_every_other_pixel_and_adds_zero_channels():
    block = ResNet20().layer2[0].eval()
    assert isinstance(block, ResidualBlock)
    torch.nn.init.zeros_(block.bn2.weight)
    torch.nn.init.zeros_(block.bn2.bias)
    x = torch.rand(1, 16, 8, 8)
    out = block(x)
    assert torch.equal(out[:, :16], x[:, :, ::2, ::2]) and not out[:, 16:].any()


def test_the_pooling_of_cct2_weighs_tokens_by_attention():
    model = CCT2().eval()
    tokens = torch.randn(2, 64, 128)
    for name in ("layers", "tokenizer"):
        setattr(model, name, torch.nn.Identity())
    model.positions.data.zero_()
    normed = F.layer_norm(tokens, (128,))
    scores = normed @ model.pool.weight[0] + model.pool.bias
    pooled = torch.einsum("nt,ntc->nc", scores.softmax(1), normed)
    torch.testing.assert_close(model(tokens), model.fc(pooled))
