from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError, InputError, ModelError
from tests.nets import build_classifier, pictures

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


class Wrapped(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.fc, self.wrap = nn.Linear(192, 5), wrap

    def forward(self, x):
        return self.wrap(self.fc(x.flatten(1)))


def build(wrap=lambda logits: logits, **options):
    return mt.Classifier(Wrapped(wrap), **{"size": 8, "mean": MEAN, "std": STD, **options})


def test_preprocessing_is_resize_centre_crop_and_normalisation():
    image = np.random.default_rng(0).integers(0, 256, (90, 60, 3), dtype=np.uint8)
    classifier = build(size=32, resize=40, interpolation="bicubic")
    resized = Image.fromarray(image).resize((40, 60), Image.Resampling.BICUBIC).crop((4, 14, 36, 46))
    expected = (np.asarray(resized) / 255 - np.array(MEAN)) / np.array(STD)
    np.testing.assert_allclose(classifier.point(image).x.permute(1, 2, 0), expected, atol=1e-6)


def test_an_image_of_the_right_size_is_not_touched():
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    point = build().point(image)
    assert np.array_equal(point.fitted, image)
    assert np.array_equal(build().tensor_point(point.x).fitted, image)


@pytest.mark.parametrize("shape", [(8, 9), (9, 8), (1, 30), (500, 3), (7, 7)])
def test_every_shape_fits(shape):
    assert build().point(np.zeros((*shape, 3), np.uint8)).x.shape == (3, 8, 8)


def test_a_shape_that_would_grow_beyond_all_bounds_is_refused():
    strip = np.zeros((1, 50_000, 3), np.uint8)
    with pytest.raises(InputError, match="image of 50000 x 1 pixels, resized: 100 megapixels or more"):
        build(size=64).point(strip)


@pytest.mark.parametrize(
    "wrap", [lambda y: {"logits": y, "loss": None}, lambda y: SimpleNamespace(logits=y), lambda y: y]
)
def test_outputs_with_logits_are_understood(wrap):
    classifier, x = build(wrap), torch.randn(2, 3, 8, 8)
    expected = classifier.module.get_submodule("fc")(x.flatten(1))
    assert torch.equal(classifier(x), expected)
    assert mt.Memo(classifier, n_views=4).predict(np.zeros((8, 8, 3), np.uint8)).adapted


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda y: y[0], r"expected logits of shape \[2, K\]"),
        (lambda y: y[:, :1], "with K at least 2"),
        (lambda y: y[:1], r"got \[1, 5\]"),
        (lambda y: y.argmax(1), "expected float logits.*got torch.int64"),
        (lambda y: (y, y), "expected float logits.*got tuple"),
        (lambda y: {"scores": y}, "expected float logits.*got dict"),
    ],
)
def test_a_module_whose_output_is_no_logits_is_named(wrap, message):
    with pytest.raises(ModelError, match=message):
        build(wrap)(torch.randn(2, 3, 8, 8))


def test_labels_must_fit_the_module():
    with pytest.raises(ModelError, match="Wrapped: expected 5 labels, one per class, got 2"):
        build(labels=["a", "b"])(torch.randn(1, 3, 8, 8))


def test_subset_cuts_logits_and_labels_before_everything_else():
    classifier = build(labels=list("abcde"))
    part, x = classifier.subset([4, 1, 2]), torch.randn(2, 3, 8, 8)
    assert torch.equal(part(x), classifier(x)[:, [4, 1, 2]])
    assert part.labels == ("e", "b", "c")
    assert part.subset([2, 0]).labels == ("c", "e")
    assert torch.equal(part.subset([2, 0])(x), classifier(x)[:, [2, 4]])
    prediction = mt.Memo(part, n_views=4).predict(np.zeros((8, 8, 3), np.uint8))
    assert prediction.logits.shape == (3,) and prediction.label in "ebc"
    assert part.module is classifier.module


@pytest.mark.parametrize("indices", [[], [1], [1, 1], [-1, 2], [1, 5]])
def test_a_subset_that_makes_no_sense(indices):
    with pytest.raises(ConfigError, match="subset: expected"):
        build(labels=list("abcde")).subset(indices)


def test_a_subset_beyond_the_module_is_found_when_it_answers():
    with pytest.raises(ModelError, match="contains class 9, but the module has 5 classes"):
        build().subset([1, 9])(torch.randn(1, 3, 8, 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": None}, "size needs mean and std"),
        ({"size": None}, "mean, std and resize need size"),
        ({"size": 0}, "size: expected at least 1"),
        ({"resize": 4}, r"resize: expected at least size \(8\), got 4"),
        ({"mean": (0.5,)}, "mean: expected 3 numbers"),
        ({"std": (0.5, 0, 0.5)}, "std: expected numbers above 0"),
        ({"interpolation": "cubic"}, "did you mean 'bicubic'"),
    ],
)
def test_a_classifier_that_cannot_work(options, message):
    with pytest.raises(ConfigError, match=message):
        build(**options)


def test_only_modules_are_classifiers():
    with pytest.raises(ConfigError, match=r"expected a torch\.nn\.Module, got function"):
        mt.Classifier(cast(Any, lambda x: x))


def test_tensors_and_pictures_are_told_apart():
    with pytest.raises(
        InputError, match=r"got a tensor: for a normalised batch \[N, 3, H, W\], call the method itself"
    ):
        build().point(torch.zeros(3, 8, 8))
    with pytest.raises(InputError, match="expected a tensor, got ndarray"):
        mt.Classifier(nn.Linear(2, 3)).point(np.zeros(2))
    with pytest.raises(InputError, match="got an empty tensor of shape"):
        mt.Classifier(nn.Linear(2, 3)).point(torch.zeros(0))


def test_calling_and_predicting_agree_on_the_same_pixels():
    image = np.random.default_rng(3).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    robust = mt.Memo(build(), n_views=4, lr=0.05)
    prediction = robust.predict(image)
    x = robust.classifier.point(image).x
    torch.testing.assert_close(robust(x[None])[0], prediction.logits)


def test_a_module_built_under_inference_mode_is_refused():
    with torch.inference_mode():
        classifier = build()
    with pytest.raises(ModelError, match="was built under inference_mode"):
        mt.Memo(classifier)


def norm_first():
    net = nn.Sequential(nn.GroupNorm(1, 3), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))
    return mt.Classifier(net, size=8, mean=MEAN, std=STD)


NORMED = {"inside": partial(build_classifier, "group-norm"), "first": norm_first}


@pytest.mark.parametrize("params", ["all", "norm", "head"])
@pytest.mark.parametrize("place", NORMED)
def test_channels_last_is_only_a_layout(place, params):
    """Torch crashes in this layout if the input of group norm needs no gradient; that is avoided."""
    answers = []
    for channels_last in (False, True):
        classifier, layouts = NORMED[place](), []
        classifier.channels_last = channels_last
        classifier.module.register_forward_pre_hook(
            lambda _, x, into=layouts: into.append(x[0].is_contiguous(memory_format=torch.channels_last))
        )
        torch.manual_seed(0)
        for parameter in classifier.module.parameters():
            nn.init.normal_(parameter, 0.1, 0.1)
        answers.append(mt.Memo(classifier, n_views=4, params=params).predict(pictures(1)[0]).logits)
        assert any(layouts) == channels_last
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-5)
