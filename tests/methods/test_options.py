"""Options: their defaults, what they choose, and what they refuse."""

import pytest

import memo_tta as mt
from memo_tta.errors import ConfigError, UnknownName
from tests.nets import build_classifier, everything, pictures


def test_settings_of_the_classifier_are_the_defaults_and_options_win():
    classifier = build_classifier("group-norm", n_views=7, lr=0.125, prior_strength=None)
    robust = mt.Memo(classifier)
    assert (robust.options.n_views, robust.options.lr, robust.options.prior_strength) == (7, 0.125, None)
    assert mt.Memo(classifier, n_views=3).options.n_views == 3
    assert mt.methods.METHODS["tta"](classifier).options.n_views == 7
    assert mt.methods.METHODS["tent"](classifier).options.lr == 2.5e-4


def test_a_setting_that_no_option_has_is_an_error():
    with pytest.raises(
        UnknownName, match=r"unknown setting of the classifier 'n_view'.*did you mean 'n_views'"
    ):
        mt.Memo(build_classifier("group-norm", n_view=3))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("norm", {"block.norm1.weight", "block.norm1.bias", "block.norm2.weight", "block.norm2.bias"}),
        ("head", {"head.weight", "head.bias"}),
        (r"class_token|positions", {"class_token", "positions"}),
        (lambda name, p: p.ndim == 4, {"patches.weight"}),
    ],
)
def test_parameter_subsets(choice, expected):
    robust = mt.Memo(build_classifier("transformer"), n_views=4, params=choice)
    names = {id(p): name for name, p in robust.classifier.module.named_parameters()}
    if choice == "norm":
        expected = expected | {"norm.weight", "norm.bias"}
    assert {names[id(p)] for p in robust._parameters} == expected
    assert robust.predict(pictures(1)[0]).adapted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_views": 0}, "n_views: expected at least 1, got 0"),
        ({"n_views": 2.5}, "n_views: expected a whole number, got 2.5"),
        ({"lr": 0}, "lr: expected more than 0, got 0"),
        ({"lr": -1.0}, "lr: expected more than 0"),
        ({"lr": "fast"}, "lr: expected a number, got 'fast'"),
        ({"lr": float("nan")}, "lr: expected a number, got nan"),
        ({"steps": -1}, "steps: expected at least 0"),
        ({"steps": 0}, "predict: without steps the point gets the source prediction: use 'marginal'"),
        ({"steps": 0, "threshold": 0.5}, "threshold: 0.5 is for steps, and steps is 0"),
        ({"steps": 0, "reset": "never"}, "reset: 'never' is for steps, and steps is 0"),
        ({"select": 0}, r"select: expected a number in \(0, 1\], got 0"),
        ({"select": 1.5}, r"select: expected a number in \(0, 1\], got 1.5"),
        ({"threshold": 1}, r"threshold: expected a number in \[0, 1\)"),
        ({"skip_confidence": 2}, "skip_confidence: expected"),
        ({"momentum": 1}, r"momentum: expected a number in \[0, 1\)"),
        ({"weight_decay": -1}, "weight_decay: expected at least 0"),
        ({"prior_strength": -1}, "prior_strength: expected at least 0"),
        ({"micro_batch": 0}, "micro_batch: expected at least 1"),
        ({"seed": -1}, "seed: expected at least 0"),
        ({"params": "nothing_is_called_this"}, "chooses none of the 9 parameters of GroupNormNet"),
        ({"params": "(["}, "nor a regular expression"),
        ({"params": 3}, "params: expected 'all', 'norm', 'head'"),
        ({"augment": 3}, "augment: expected a name or a callable"),
        ({"objective": "pairwise_cross_entropy", "n_views": 1}, "must leave 2 or more"),
        ({"objective": "pairwise_cross_entropy", "n_views": 8, "select": 0.1}, "must leave 2 or more"),
    ],
)
def test_options_that_cannot_work_say_so(options, message):
    classifier = build_classifier("group-norm")
    before = everything(classifier.module)
    with pytest.raises(ConfigError, match=message):
        mt.Memo(classifier, **options)
    assert everything(classifier.module) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_view": 3}, "unknown option 'n_view': .*did you mean 'n_views'"),
        ({"optimizer": "sdg"}, "unknown optimizer 'sdg': choose from sgd, adam, adamw; did you mean 'sgd'"),
        ({"objective": "entropy"}, "unknown objective 'entropy'"),
        ({"augment": "augmx"}, "unknown augmentation 'augmx'.*did you mean 'augmix'"),
        ({"predict": "points"}, "unknown predict 'points'.*did you mean 'point'"),
    ],
)
def test_unknown_names_answer_with_the_choices(options, message):
    with pytest.raises(UnknownName, match=message):
        mt.Memo(build_classifier("group-norm"), **options)
