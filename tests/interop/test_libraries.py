"""Models of timm and torchvision: their preprocessing is used, all parameters are adapted and restored."""

from functools import partial
from time import perf_counter

import numpy as np
import pytest
import torch
from PIL import Image

import memo_tta as mt
from memo_tta.errors import CheckpointError, MemoError, UnknownName
from memo_tta.models import published_weights, zoo
from tests.nets import pictures

TIMM = ("resnet10t", "vit_tiny_patch16_224", "convnext_atto", "efficientnet_b0", "mobilenetv3_small_050")


@pytest.fixture(scope="module")
def photo():
    """A smooth image, wider than high."""
    return np.asarray(Image.fromarray(pictures(1)[0]).resize((331, 267), Image.Resampling.BICUBIC))


@pytest.fixture
def load(timm, tmp_path):
    """A function that loads a timm model with random weights, none of them zero, from a file."""

    def build(name, **given):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = timm.create_model(name)
            for parameter in module.parameters():
                parameter.data += 0.01 * torch.randn_like(parameter)
        torch.save({"state_dict": module.state_dict()}, tmp_path / "weights.pth")
        return zoo.load(f"timm:{name}", weights=tmp_path / "weights.pth", **given)

    return build


@pytest.mark.parametrize("name", TIMM)
def test_preprocessing_is_timms_own(timm, load, photo, name):
    classifier = load(name)
    config = timm.data.resolve_model_data_config(classifier.module)
    expected = timm.data.create_transform(**config)(Image.fromarray(photo))
    torch.testing.assert_close(classifier.point(photo).x, expected, rtol=0, atol=1e-6)
    assert classifier.labels is not None and classifier.labels[0] == "tench"


@pytest.mark.parametrize("name", TIMM)
def test_every_parameter_is_adapted_and_restored(load, photo, name):
    classifier = load(name)
    source = {key: value.clone() for key, value in classifier.module.state_dict().items()}
    seen = []
    hook = classifier.module.register_forward_pre_hook(
        lambda module, _: seen.append({key: p.detach().clone() for key, p in module.named_parameters()})
    )
    robust = mt.Memo(classifier, n_views=2, optimizer="adamw", lr=1e-3, weight_decay=0.1)
    prediction = robust.predict(photo)
    hook.remove()
    assert prediction.adapted
    unchanged = [[key for key, value in state.items() if torch.equal(value, source[key])] for state in seen]
    assert not min(unchanged, key=len)  # at the forward pass that predicts
    assert all(torch.equal(value, source[key]) for key, value in classifier.module.state_dict().items())


def test_torchvision_has_the_transforms_and_labels_of_its_weights(torchvision, photo, tmp_path):
    module = torchvision.models.resnet18()
    torch.save(module.state_dict(), tmp_path / "weights.pth")
    classifier = zoo.load("torchvision:resnet18", weights=tmp_path / "weights.pth")
    preset = torchvision.models.ResNet18_Weights.DEFAULT.transforms()
    expected = preset(Image.fromarray(photo))
    torch.testing.assert_close(classifier.point(photo).x, expected, rtol=0, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(classifier(expected[None]), module.eval()(expected[None]))
    assert classifier.labels is not None and classifier.labels[207] == "golden retriever"
    own = zoo.load("resnet18", weights=tmp_path / "weights.pth")
    with torch.no_grad():
        torch.testing.assert_close(own(expected[None]), classifier(expected[None]))


def test_a_head_of_another_size_is_asked_for(timm, tmp_path):
    module = timm.create_model("resnet10t", num_classes=7)
    torch.save(module.state_dict(), tmp_path / "seven.pth")
    with pytest.raises(CheckpointError, match=r"head has 7 classes, the model 1000: pass num_classes=7"):
        zoo.load("timm:resnet10t", weights=tmp_path / "seven.pth")
    classifier = zoo.load("timm:resnet10t", weights=tmp_path / "seven.pth", num_classes=7)
    assert classifier.labels is None and classifier(torch.zeros(1, 3, 224, 224)).shape == (1, 7)


def test_names_that_the_libraries_do_not_have(timm):
    with pytest.raises(UnknownName, match="unknown timm model 'resnet5'"):
        zoo.load("timm:resnet5")
    with pytest.raises(UnknownName, match=r"unknown torchvision model 'resnet5'.*did you mean 'resnet50'"):
        zoo.load("torchvision:resnet5")


@pytest.fixture
def changed(timm, monkeypatch, tmp_path):
    """A function that loads a small timm model as if it had been published with another crop."""

    def build(**crop):
        torch.save(timm.create_model("resnet10t").state_dict(), tmp_path / "weights.pth")
        resolve = timm.data.resolve_model_data_config
        config = {**resolve(timm.create_model("resnet10t")), **crop}
        monkeypatch.setattr(timm.data, "resolve_model_data_config", lambda _: config)
        return zoo.load("timm:resnet10t", weights=tmp_path / "weights.pth"), config

    return build


@pytest.mark.parametrize(
    "crop",
    [
        {"crop_mode": "squash", "crop_pct": 1.0},
        {"crop_mode": "squash", "crop_pct": 0.9},
        {"crop_mode": "squash", "crop_pct": 0.875, "input_size": (3, 160, 224)},
        {"crop_mode": "center", "crop_pct": 1.0, "input_size": (3, 160, 224)},
    ],
)
def test_other_crops_are_timms_own(timm, changed, photo, crop):
    classifier, config = changed(**crop)
    expected = timm.data.create_transform(**config)(Image.fromarray(photo))
    found = classifier.point(photo).x
    assert found.shape == expected.shape == config["input_size"]
    # timm rounds the longer side, where others truncate it: that may shift the crop by half a pixel.
    exact = config["crop_mode"] == "squash"
    assert (found - expected).abs().mean() < (1e-6 if exact else 0.05)


@pytest.mark.parametrize("crop", [{"crop_mode": "border"}, {"crop_pct": 0.9, "input_size": (3, 160, 224)}])
def test_a_crop_that_is_not_known_is_refused(changed, crop):
    with pytest.raises(
        MemoError, match=r"timm:resnet10t: expected a square centre crop.*preprocess the images"
    ):
        changed(**crop)


def test_given_settings_replace_those_of_the_library(load, photo, timm):
    classifier = load(
        "resnet10t", size=(96, 128), mean=0.5, labels={str(i): f"name {i}" for i in range(1000)}
    )
    assert classifier.point(photo).x.shape == (3, 96, 128)
    assert classifier.preprocessing.mean == (0.5,) * 3 and classifier.preprocessing.resize is None
    assert classifier.labels is not None and classifier.labels[999] == "name 999"


SPECS = ["timm:resnet10t", "timm:resnet50", "torchvision:resnet18"]


@pytest.mark.parametrize("spec", SPECS)
def test_without_the_internet_one_line_says_so_soon(timm, monkeypatch, tmp_path, spec):
    """An address of this machine on which nothing listens stands for a network that is down."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(published_weights, "urlopen", partial(_nothing_listens, published_weights.urlopen))
    began = perf_counter()
    with pytest.raises(
        CheckpointError, match=r"cannot be downloaded .*Connection refused.*: give a file"
    ) as refused:
        zoo.load(spec)
    assert perf_counter() - began < 5 and "\n" not in str(refused.value)


def _nothing_listens(urlopen, _request, timeout):
    return urlopen("http://127.0.0.1:9/", timeout=timeout)


def test_a_failed_download_is_one_line(timm, monkeypatch):
    def fail(*_, **__):
        raise OSError("connection reset\nby peer")

    monkeypatch.setattr(published_weights, "_check_reached", lambda *_: None)
    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(
        CheckpointError, match=r"timm:resnet10t: .*\(connection reset\): give a file"
    ) as refused:
        zoo.load("timm:resnet10t")
    assert "\n" not in str(refused.value)


def test_a_model_without_published_weights_asks_for_a_file(timm):
    name = next(
        name
        for name in timm.list_models()
        if not (timm.get_pretrained_cfg(name).url or timm.get_pretrained_cfg(name).hf_hub_id)
    )
    with pytest.raises(CheckpointError, match=f"timm:{name}: has no published weights: give a file"):
        zoo.load(f"timm:{name}")
