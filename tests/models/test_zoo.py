"""Models by name: the table, and the user's own files."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.errors import CheckpointError, ConfigError, ModelError, UnknownName
from memo_tta.models import zoo
from memo_tta.models.zoo import ZOO
from tests.nets import pictures


@pytest.mark.parametrize("name", ZOO)
def test_every_model_can_be_listed_and_says_how_to_get_its_weights(memo, name):
    code, out, _ = memo("models", name)
    assert code == 0 and ZOO[name].about in out and "weights" in out
    rows = {" ".join(line.split()) for line in out.splitlines()}
    assert {f"memo.{key} {value}" for key, value in ZOO[name].settings.items()} <= rows
    is_careful = "lr" not in ZOO[name].settings
    assert f"memo.augment {'augmix-mild' if is_careful else 'augmix'}" in rows


def test_the_papers_settings():
    """They are those of the table in appendix B, and of the published code."""
    settings = {name: entry.settings for name, entry in ZOO.items()}
    assert settings["resnet50"] == {"optimizer": "sgd", "lr": 0.00025, "n_views": 64, "prior_strength": 16}
    assert settings["rvt_small_plus"] == {
        "optimizer": "adamw",
        "lr": 1e-5,
        "weight_decay": 0.01,
        "n_views": 64,
        "prior_strength": 16,
    }
    assert settings["resnext101_32x8d"] == {**settings["rvt_small_plus"], "n_views": 32}
    assert settings["resnext101_32x8d-wsl"] == {**settings["resnext101_32x8d"], "prior_strength": None}


def test_weights_that_are_not_here_say_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMO_DATA", str(tmp_path))
    with pytest.raises(
        CheckpointError, match=r"resnet50: its weights are not installed: .*download\.pytorch\.org"
    ):
        zoo.load("resnet50")
    with pytest.raises(
        CheckpointError, match="mobilenet_v2: its weights are not installed: run `memo data get mobilenet_v2`"
    ):
        zoo.load("mobilenet_v2")


def test_unknown_models_list_the_choices():
    with pytest.raises(UnknownName, match=r"timm:NAME.*did you mean 'resnet50'"):
        zoo.load("resnet500")


def test_another_number_of_classes(tmp_path):
    torch.save(zoo.ResNet26(3).state_dict(), tmp_path / "three.pth")
    with pytest.raises(CheckpointError, match="head has 3 classes, the model 10: pass num_classes=3"):
        zoo.load("resnet26", weights=tmp_path / "three.pth")
    classifier = zoo.load("resnet26", weights=tmp_path / "three.pth", num_classes=3)
    assert classifier.labels is None and len(mt.Memo(classifier).predict(pictures(1)[0]).logits) == 3


OWN = """
from torch import nn
import memo_tta as mt

def module():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))

def build():
    return mt.Classifier(module(), size=8, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list("abcd"))
"""


def test_a_file_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    weights = {"1.weight": torch.ones(4, 192), "1.bias": torch.arange(4.0)}
    torch.save({"model": weights}, tmp_path / "w.pth")
    classifier = mt.load(f"{tmp_path}/own.py:build", weights=tmp_path / "w.pth")
    assert mt.Memo(classifier, n_views=2).predict(pictures(1)[0]).label in "abcd"
    assert torch.equal(classifier.module.state_dict()["1.bias"], torch.arange(4.0))
    with pytest.raises(ModelError, match=r"expected a memo_tta\.Classifier.*got Sequential"):
        mt.load(f"{tmp_path}/own.py:module")
    with pytest.raises(ConfigError, match="defines no function 'nothing'"):
        mt.load(f"{tmp_path}/own.py:nothing")
    with pytest.raises(ConfigError, match=r"other\.py does not exist"):
        mt.load(f"{tmp_path}/other.py:build")


class FromTheHub(nn.Module):
    """A classifier like those of transformers: an output with .logits, and labels in config.id2label."""

    class Output:
        def __init__(self, logits):
            self.logits = logits

    config = SimpleNamespace(id2label={0: "cat", 1: "dog", 2: "owl"})

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, pixels):
        return self.Output(self.head(pixels.mean(dim=(2, 3))))


def test_labels_come_from_the_model_where_it_has_them():
    classifier = mt.Classifier(FromTheHub(), size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    assert classifier.labels == ("cat", "dog", "owl")
    assert mt.Memo(classifier, n_views=2).predict(pictures(1)[0]).label in ("cat", "dog", "owl")
    assert mt.Classifier(FromTheHub(), labels=list("abc")).labels == ("a", "b", "c")


@pytest.mark.parametrize("name", [name for name in ZOO if (zoo.BUNDLED / f"{name}.safetensors").is_file()])
def test_shipped_weights_have_the_error_their_card_says(name):
    """Measured on the 500 bundled images, a twentieth of the test images."""
    classifier = mt.load(name)
    sample = mt.load_dataset("sample")
    with torch.no_grad():
        logits = torch.cat(
            [
                classifier(
                    torch.stack(
                        [classifier.point(sample[place].image).x for place in range(start, start + 100)]
                    )
                )
                for start in range(0, 500, 100)
            ]
        )
    error = 100 * (logits.argmax(1).numpy() != sample.targets).mean()
    facts = json.loads((zoo.BUNDLED / f"{name}.json").read_text())
    assert error == pytest.approx(facts["test_error"], abs=4)
    assert (zoo.BUNDLED / f"{name}.safetensors").stat().st_size < 3_000_000
