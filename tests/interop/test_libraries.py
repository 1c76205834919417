"""Models of timm and torchvision: their preprocessing is used, all parameters are adapted and restored."""

import numpy as np
import pytest
import torch
from PIL import Image

import memo_tta as mt
from memo_tta.errors import CheckpointError, MemoError, UnknownName
from memo_tta.models import zoo
from tests.nets import pictures

TIMM = ("resnet10t", "vit_tiny_patch16_224", "convnext_atto", "efficientnet_b0", "mobilenetv3_small_050")


@pytest.fixture(scope="module")
def photo():
    """A smooth image, wider than high."""
    return np.asarray(Image.fromarray(pictures(1)[0]).resize((331, 267), Image.Resampling.BICUBIC))


@pytest.fixture
def load(timm, tmp_path):
    """A function that loads a timm model with random weights, none of them zero, from a file."""

    def build(name):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module = timm.create_model(name)
            for parameter in module.parameters():
                parameter.data += 0.01 * torch.randn_like(parameter)
        torch.save({"state_dict": module.state_dict()}, tmp_path / "weights.pth")
        return zoo.load(f"timm:{name}", weights=tmp_path / "weights.pth")

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


def test_a_crop_that_is_not_known_is_refused(timm, tmp_path):
    squashed = next(
        name
        for name in timm.list_models(pretrained=True)
        if timm.get_pretrained_cfg(name).crop_mode == "squash"
    )
    with pytest.raises(MemoError, match="expected a square centre crop"):
        zoo.load(f"timm:{squashed.partition('.')[0]}", weights=tmp_path / "none.pth")
