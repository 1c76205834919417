"""Modules that cannot be adapted and restored are refused by name, with what works instead."""

import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError, ModelError
from memo_tta.models.fingerprint import fingerprint
from tests.nets import build_classifier, pictures

SETTINGS: Any = {"size": 8, "mean": 0.5, "std": 0.5}


def net():
    return build_classifier("no-norm").module.eval()


def exported():
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    return torch.export.export(net(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=shapes).module()


def scripted():
    return torch.jit.script(net())


def frozen():
    return torch.jit.freeze(scripted())


REFUSED = {
    "exported": (exported, "GraphModule: holds an exported program"),
    "scripted": (scripted, "RecursiveScriptModule: holds TorchScript"),
    "frozen": (frozen, "RecursiveScriptModule: holds TorchScript"),
    "inside": (lambda: nn.Sequential(exported()), "Sequential: holds an exported program"),
}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_restored_is_refused_and_works_as_a_function(kind):
    build, message = REFUSED[kind]
    module = build()
    with pytest.raises(ModelError, match=f"{message}.*Classifier.from_function"):
        mt.Classifier(module, **SETTINGS)
    function = mt.Classifier.from_function(module, takes="tensor", **SETTINGS)
    image, expected = pictures(1)[0], mt.Classifier(net(), **SETTINGS)
    for method in ("source", "tta"):
        found, wanted = (mt.method(method, c).predict(image).logits for c in (function, expected))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_traced_graph_is_an_ordinary_module():
    classifier = mt.Classifier(torch.fx.symbolic_trace(net()), **SETTINGS)
    assert mt.Memo(classifier, n_views=4).predict(pictures(1)[0]).adapted


class Contrastive(nn.Module):
    def get_image_features(self):
        pass

    def get_text_features(self):
        pass


def test_a_model_of_images_and_texts_has_no_classes():
    with pytest.raises(
        ModelError, match=r"Contrastive: compares images with texts.*load\('clip:NAME', labels"
    ):
        mt.Classifier(Contrastive(), **SETTINGS)


def test_a_function_is_not_a_module():
    with pytest.raises(ConfigError, match=r"got function: a function is used by Classifier\.from_function"):
        mt.Classifier(lambda x: x)  # pyright: ignore[reportArgumentType]


class WithoutGradient(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    @torch.no_grad()
    def forward(self, x):
        return self.net(x)


def test_logits_without_a_gradient_say_what_works():
    classifier = mt.Classifier(WithoutGradient(), **SETTINGS)
    with pytest.raises(ModelError, match=r"do not depend on the chosen parameters.*source, tta or restore"):
        mt.Memo(classifier, n_views=4).predict(pictures(1)[0])
    assert mt.method("restore", classifier).predict(pictures(1)[0]).logits.shape == (5,)


class WithLock(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.lock = net(), threading.Lock()

    def forward(self, x):
        return self.net(x)


def test_a_module_that_cannot_be_copied_is_named():
    classifier = mt.Classifier(WithLock(), **SETTINGS)
    assert mt.Memo(classifier, n_views=4).predict(pictures(1)[0]).adapted
    with pytest.raises(
        ModelError, match=r"WithLock: cannot be copied \(TypeError: cannot pickle.*__deepcopy__"
    ):
        classifier.independent()


def quantised(images):
    """Return a statically quantised network, and the one it was made from."""
    from torch.ao import quantization

    source = nn.Sequential(quantization.QuantStub(), net(), quantization.DeQuantStub()).eval()
    source.qconfig = quantization.get_default_qconfig("x86")  # pyright: ignore[reportArgumentType]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = quantization.prepare(source)
        prepared(images)
        return quantization.convert(prepared), source


def test_a_quantised_network_works_where_nothing_is_adapted():
    images = torch.randn(64, 3, 8, 8)
    module, source = quantised(images)
    classifier = mt.Classifier(module, **SETTINGS)
    expected = mt.method("tta", mt.Classifier(source, **SETTINGS)).predict(pictures(1)[0]).logits
    found = mt.method("tta", classifier).predict(pictures(1)[0]).logits
    assert (found - expected).abs().max() < 0.2 * expected.std()
    with pytest.raises(
        ModelError, match=r"has no parameters that can be adapted: use .* source, tta or restore"
    ):
        mt.Memo(classifier)
    other, _ = quantised(3 * images)
    assert fingerprint(module) == fingerprint(classifier.independent().module) != fingerprint(other)
