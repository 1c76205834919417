"""What a classifier and a method are, in one line."""

import pytest
from torch import nn

import memo_tta as mt
from memo_tta.methods import METHODS
from memo_tta.methods.source import Source


@pytest.fixture(scope="module")
def resnet26() -> mt.Classifier:
    return mt.load("resnet26")


def test_a_classifier_says_its_network_classes_pixels_and_parameters(resnet26):
    assert repr(resnet26) == "Classifier(ResNet26, 10 classes, 32×32 pixels, 0.37 M parameters)"
    assert repr(resnet26.subset([3, 5])).startswith("Classifier(ResNet26, 2 classes, 32×32")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, "Classifier(Linear, 8 parameters)"),
        ({"labels": ["a", "b"]}, "Classifier(Linear, 2 classes, 8 parameters)"),
        (
            {"size": (1, 3), "mean": 0.5, "std": 0.5, "channels": 1},
            "Classifier(Linear, 1×3 pixels, channels=1, 8 parameters)",
        ),
    ],
)
def test_what_is_not_known_is_left_out(arguments, shown):
    assert repr(mt.Classifier(nn.Linear(3, 2), **arguments)) == shown


def test_a_data_set_says_its_name_shift_and_size():
    assert repr(mt.load_dataset("sample")) == "Dataset(sample, 500 images, 10 classes)"
    assert (
        repr(mt.load_dataset("sample+fog:3")) == "Dataset(sample under fog, level 3, 500 images, 10 classes)"
    )


def test_a_function_has_no_parameters():
    answers = mt.Classifier.from_function(lambda x: x, size=8, mean=0.5, std=0.5)
    assert repr(answers) == "Classifier(FunctionModule, 8×8 pixels)"


@pytest.mark.filterwarnings("ignore:prior_strength")  # the model has no batch norm
@pytest.mark.parametrize("name", [name for name in METHODS if name != "ttt"])
def test_every_row_says_its_name(name, resnet26):
    assert repr(mt.method(name, resnet26)) == f"{name} on ResNet26"


def test_options_that_were_changed_are_shown(resnet26):
    def views(): ...

    robust = mt.method("memo", resnet26, n_views=16, lr=0.5, augment=views, threshold=None)
    assert repr(robust) == "memo(n_views=16, augment=views, lr=0.5) on ResNet26"
    unsure = mt.method("restore", resnet26, n_views=4, early_views=None)
    assert repr(unsure) == "restore(n_views=4, early_views=None, early_confidence=0.9) on ResNet26"
    assert repr(mt.Memo(resnet26, objective="conditional_entropy")) == "memo-ce on ResNet26"


def test_defaults_are_those_for_the_model():
    # By name, large images of a model that was not tuned get other defaults.
    large = mt.Classifier(nn.Sequential(nn.Conv2d(3, 2, 9), nn.BatchNorm2d(2)), size=224, mean=0.5, std=0.5)
    assert repr(mt.method("memo", large)) == "memo on Sequential"
    assert "augment='augmix'" in repr(mt.Memo(large))


def test_a_method_of_one_s_own_has_the_name_of_its_class(resnet26):
    class Sceptical(Source): ...

    assert repr(Sceptical(resnet26, seed=4)) == "Sceptical(seed=4) on ResNet26"
