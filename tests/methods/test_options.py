"""Options: defaults, checks, and combinations without effect."""

import inspect
import math
import pydoc
from typing import Any

import pytest
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError, UnknownName
from memo_tta.methods import METHODS
from memo_tta.methods.options import Number
from memo_tta.models.zoo import ZOO
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
    assert {names[id(p)] for p in robust.parameters} == expected
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
        ({"steps": -1}, "steps: expected at least 1, got -1"),
        ({"steps": 0}, "steps: expected at least 1, got 0: the method tta averages"),
        ({"select": 0}, r"select: expected a number in \(0, 1\], got 0"),
        ({"select": 1.5}, r"select: expected a number in \(0, 1\], got 1.5"),
        ({"threshold": 1}, r"threshold: expected a number in \[0, 1\)"),
        ({"skip_confidence": 2}, "skip_confidence: expected"),
        ({"momentum": 1}, r"momentum: expected a number in \[0, 1\)"),
        ({"weight_decay": -1}, "weight_decay: expected at least 0"),
        ({"prior_strength": -1}, "prior_strength: expected at least 0"),
        ({"micro_batch": 0}, "micro_batch: expected at least 1"),
        ({"seed": -1}, "seed: expected at least 0"),
        ({"params": "nothing_is_called_this"}, "matches none of the 9 parameters of GroupNormNet"),
        ({"params": "(["}, "nor a regular expression"),
        ({"params": 3}, "params: expected 'all', 'trainable', 'norm', 'head', 'last:K'"),
        ({"params": "last:0"}, "params: 'last:0': expected at least one block"),
        ({"augment": 3}, "augment: expected a name or a function"),
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
        ({"optimizer": ["sgd"]}, r"unknown optimizer \['sgd'\]: choose from sgd"),
    ],
)
def test_unknown_names_answer_with_the_choices(options, message):
    with pytest.raises(UnknownName, match=message):
        mt.Memo(build_classifier("group-norm"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"temperature": 3},
            "temperature: has no effect with weighting='uniform': set weighting=",
        ),
        ({"pull": 0.1}, "pull: has no effect with reset='always': set reset='anchor', or leave pull out"),
        (
            {"early_confidence": 0.5},
            "early_confidence: has no effect with early_views=None",
        ),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum: has no effect with optimizer='adam'"),
        ({"momentum": 0.9}, "momentum: has no effect with steps=1 and carry_optimizer=False: set steps=2 or"),
        ({"carry_optimizer": True}, "carry_optimizer: has no effect with optimizer='sgd' and momentum=0"),
        ({"carry_optimizer": "yes"}, "carry_optimizer: expected true or false, got 'yes'"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        mt.Memo(build_classifier("group-norm"), **options)


def test_a_default_that_an_option_leaves_without_effect_gives_way():
    """Settings and rows are only defaults, so a given option may override them silently."""
    classifier = build_classifier("group-norm", optimizer="sgd", steps=2, momentum=0.9)
    assert mt.Memo(classifier).options.momentum == 0.9
    assert mt.Memo(classifier, optimizer="adam").options.momentum == 0
    assert mt.Memo(classifier, steps=1).options.momentum == 0
    weighted = build_classifier("group-norm", weighting="confidence", temperature=3)
    assert mt.Memo(weighted, select=0.5).options.weighting == "uniform"
    assert mt.method("memo-pce", weighted).options.weighting == "uniform"
    assert mt.method("restore", classifier, early_views=None).options.early_confidence == 0.9
    with pytest.raises(ConfigError, match="pull: has no effect"):
        mt.Memo(build_classifier("group-norm", pull=0.5))


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"preset": "best"}, "mt.method('restore', classifier)"),
        ({"budget": "fast"}, "mt.method('memo-fast', classifier)"),
        ({"budget_seconds": 0.2}, "n_views=16"),
        ({"steps": 0}, "the method tta averages views without a step"),
    ],
)
def test_an_option_that_is_gone_is_answered_with_what_to_write(options, instead):
    for build in (
        lambda: mt.Memo(build_classifier("group-norm"), **options),
        lambda: mt.Memo(build_classifier("group-norm", **options)),
        lambda: mt.method("memo-ce", build_classifier("group-norm"), **options),
    ):
        with pytest.raises(ConfigError) as error:
            build()
        assert instead in str(error.value) and next(iter(options)) in str(error.value)


def test_an_option_that_asks_for_nothing_is_never_refused():
    off = {"momentum": 0, "carry_optimizer": False, "weighting": "uniform"}
    mt.Memo(build_classifier("group-norm"), optimizer="adam", select=0.5, **off)


@pytest.mark.parametrize("name", METHODS)
def test_options_are_resolved_as_they_are_built(name):
    net = "rotation" if name == "ttt" else "batch-norm"
    classifier = build_classifier(net, n_views=7, lr=0.125, prior_strength=4)
    for given in ({}, {"seed": 3}):
        assert METHODS[name].resolve(classifier.settings, given) == METHODS[name](classifier, **given).options
    defaults = {key: declared.default for key, declared in METHODS[name].declarations.items()}
    assert defaults == vars(METHODS[name](build_classifier(net)).options)


def test_help_shows_every_option_with_its_default():
    shown, known = inspect.signature(mt.Memo).parameters, METHODS["memo"].declarations
    assert list(shown) == ["classifier", *known]
    assert all(shown[name].default == declared.default for name, declared in known.items())
    text = pydoc.plain(pydoc.render_doc(mt.Memo))
    for declared in known.values():
        assert f"{declared.name} ({declared.shown_values}): {declared.meaning}" in text


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("[0, inf)", [0, 0.5, 1e9], [-1e-9]),
        ("(0, inf)", [1e-9], [0, -1]),
        ("(0, 1]", [1, 1e-9], [0, 1.0001]),
        ("[0, 1)", [0, 0.9999], [1, -0.1]),
    ],
)
def test_ends_of_an_interval_count_as_written(interval, inside, outside):
    values = Number(interval)
    for value in inside:
        values.check("x", value)
    for value in [*outside, math.nan, math.inf, True, "1", None]:
        with pytest.raises(ConfigError, match="x: expected"):
            values.check("x", value)


def large_model(**settings: Any) -> mt.Classifier:
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 65 * 65, 2))
    return mt.Classifier(module, size=65, mean=(0.5,) * 3, std=(0.5,) * 3, settings=settings)


@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("memo")])
def test_memo_is_careful_with_large_images_of_untuned_models(name):
    careful = {
        "augment": "augmix-mild",
        "skip_margin": 0.8,
        "clean_strength": 0.125,
        "predict": "with_source",
    }
    options = vars(mt.method(name, large_model()).options)
    assert vars(mt.method(name, large_model(n_views=64)).options) == options  # not a sign of tuning
    assert careful.items() <= options.items()
    assert vars(METHODS[name].resolve({}, {}, 65)) == options
    changed = mt.method(name, large_model(), clean_strength=None, augment="augmix").options
    assert (changed.clean_strength, changed.augment, changed.skip_margin) == (None, "augmix", 0.8)


@pytest.mark.parametrize(
    "options",
    [
        mt.method("memo", large_model(lr=0.001)).options,  # tuned
        mt.Memo(large_model()).options,
        METHODS["memo"].resolve({}, {}, 64),
        METHODS["memo"].resolve(ZOO["resnet50"].settings, {}, 224),
    ],
)
def test_memo_is_the_paper_s_elsewhere(options):
    assert (options.augment, options.prior_strength) == ("augmix", 16)
    assert (options.skip_margin, options.clean_strength, options.predict) == (None, None, "point")
