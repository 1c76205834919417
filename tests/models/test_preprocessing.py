"""Preprocessing of every shape: compared with Pillow's resizing and an explicit crop."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import memo_tta as mt
from memo_tta.data.corruptions import corrupt
from memo_tta.errors import ConfigError, InputError
from memo_tta.methods import METHODS
from memo_tta.models.preprocessing import Preprocessing
from memo_tta.seeding import sample_rng
from tests.nets import build_classifier

BILINEAR = Image.Resampling.BILINEAR


def preprocess(size: Any = 8, mean: Any = 0.5, std: Any = 0.5, *rest: Any, **given: Any) -> Preprocessing:
    return Preprocessing(size, mean, std, *rest, **given)


def generated(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def cropped(picture, size, resized):
    """Return what Pillow gives: resized to (height, width), and its centre cut out."""
    picture = picture.resize(resized[::-1], BILINEAR)
    left, top = round((picture.width - size[1]) / 2), round((picture.height - size[0]) / 2)
    return np.asarray(picture.crop((left, top, left + size[1], top + size[0])))


@pytest.mark.parametrize(
    ("size", "resize", "shape", "resized"),
    [
        ((64, 96), None, (200, 200), (96, 96)),  # the shorter side is as wide as the crop
        ((64, 96), None, (100, 400), (64, 256)),
        ((64, 96), None, (64, 96), (64, 96)),
        ((64, 96), None, (400, 100), (384, 96)),
        ((96, 64), None, (210, 111), (121, 64)),
        ((64, 96), 110, (210, 111), (208, 110)),
        ((64, 96), (64, 96), (210, 111), (64, 96)),  # squashed
        ((64, 96), (80, 120), (300, 300), (80, 120)),
        (64, (64, 64), (210, 111), (64, 64)),
        (64, (70, 80), (210, 111), (70, 80)),
    ],
)
def test_images_are_resized_and_cropped_as_pillow_does(size, resize, shape, resized):
    image = generated(*shape, 3)
    fitted = preprocess(size, 0.5, 0.5, resize).fit(image)
    target = (size, size) if isinstance(size, int) else size
    np.testing.assert_array_equal(fitted, cropped(Image.fromarray(image), target, resized))


@pytest.mark.parametrize("source", ["array", "grey array", "picture", "file"])
def test_images_become_grey_for_one_channel(source, tmp_path):
    image = generated(50, 40, 3)
    picture = Image.fromarray(image).convert("L")
    sources = {"array": image, "grey array": np.asarray(picture), "picture": Image.fromarray(image)}
    if source == "file":
        Image.fromarray(image).save(tmp_path / "image.png")
    classifier = mt.Classifier(nn.Flatten(), size=32, mean=0.1307, std=0.3081, channels=1)
    point = classifier.point(sources.get(source, tmp_path / "image.png"))
    expected = (cropped(picture, (32, 32), (40, 32)) / 255 - 0.1307) / 0.3081
    np.testing.assert_allclose(point.x[0], expected, atol=1e-6)
    assert point.fitted.shape == (32, 32, 1)


@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_two_and_four_channels_are_resized_one_by_one(channels, kind):
    image = generated(50, 40, channels)
    given = {np.uint8: image, np.uint16: image.astype(np.uint16) * 257, np.float32: image / np.float32(255)}
    fitted = preprocess(32, [0.5] * channels, 0.5).fit(
        preprocess(32, 0.5, 0.5, channels=channels).read(given[kind])
    )
    for channel in range(channels):
        expected = cropped(Image.fromarray(image[..., channel]), (32, 32), (40, 32))
        np.testing.assert_array_equal(fitted[..., channel], expected)


@pytest.mark.parametrize("source", [generated(40, 40, 3), generated(40, 40), Image.new("RGBA", (40, 40))])
def test_only_arrays_have_four_channels(source):
    message = r"expected an array of shape \(height, width, 4\), got .*: the model takes 4 channels"
    with pytest.raises(InputError, match=message):
        preprocess(32, 0.5, 0.5, channels=4).read(source)


@pytest.mark.parametrize(
    ("given", "mean", "std"),
    [
        ({"mean": 0.5, "std": 0.25}, (0.5,) * 3, (0.25,) * 3),
        ({"mean": 0.5, "std": (0.25, 0.5)}, (0.5,) * 2, (0.25, 0.5)),
        ({"mean": [0.1], "std": 0.3}, (0.1,), (0.3,)),
        ({"mean": np.array([0.1, 0.2, 0.3, 0.4]), "std": 1}, (0.1, 0.2, 0.3, 0.4), (1.0,) * 4),
        ({"mean": torch.tensor(0.5), "std": 0.5, "channels": 2}, (0.5,) * 2, (0.5,) * 2),
    ],
)
def test_one_number_is_for_every_channel(given, mean, std):
    preprocessing = preprocess(8, **given)
    assert (preprocessing.mean, preprocessing.std) == (mean, std)
    assert preprocessing.shape == (len(mean), 8, 8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": (8, 9, 3)}, r"size: expected pixels per side, or \(height, width\), got \(8, 9, 3\)"),
        ({"size": 8.5}, "size: expected pixels per side"),
        ({"size": (0, 8)}, r"size: expected at least 1 pixel, got \(0, 8\)"),
        (
            {"size": (8, 16), "resize": 12},
            r"resize: expected at least the longer side of size \(\(8, 16\)\), got 12",
        ),
        ({"resize": (8, 7)}, r"resize: expected at least size \(8\), got \(8, 7\)"),
        ({"resize": 0}, "resize: expected at least 1 pixel"),
        ({"mean": (0.5,) * 5}, "channels: expected 1 to 4, got 5"),
        ({"mean": (0.5, 0.5), "channels": 3}, r"mean: expected 3 numbers, got \[0.5, 0.5\]"),
        ({"mean": (123.675, 116.28, 103.53)}, "mean: expected numbers in 0..1.*divide mean and std by 255"),
        ({"std": (58.4, 57.1, 57.4)}, "std: expected numbers in 0..1.*divide mean and std by 255"),
        ({"mean": -0.5}, "mean: expected numbers in 0..1"),
        ({"mean": "grey"}, "mean: expected one number, or one per channel, got 'grey'"),
        ({"mean": ()}, "mean: expected one number, or one per channel"),
        ({"std": float("nan")}, "std: expected one number, or one per channel, got nan"),
    ],
)
def test_settings_that_make_no_sense(given, message):
    with pytest.raises(ConfigError, match=message):
        preprocess(**{"size": 8, "mean": 0.5, "std": 0.5, **given})


def net(channels, height, width):
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * ((height - 1) // 2) * ((width - 1) // 2), 5),
    ).eval()


SHAPES = [(1, 16, 16), (2, 16, 24), (3, 24, 16), (4, 12, 20), (1, 70, 30)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", [name for name in METHODS if name != "ttt"])
def test_every_method_takes_every_shape(method, shape):
    channels, height, width = shape
    module = net(*shape)
    source = {key: value.clone() for key, value in module.state_dict().items()}
    size = height if height == width else (height, width)
    classifier = mt.Classifier(module, size=size, mean=[0.5] * channels, std=0.25)
    assert classifier.size == size
    few = {"n_views": 4} if "n_views" in METHODS[method].declarations else {}
    robust = METHODS[method](classifier, **few)
    images = [generated(height + 9, width + 4, channels) for _ in range(2)]
    predictions = robust.predict(images)
    assert all(torch.isfinite(p.logits).all() and p.logits.shape == (5,) for p in predictions)
    assert all(torch.equal(value, source[key]) for key, value in module.state_dict().items())
    x = classifier.point(images[0]).x
    with torch.no_grad():
        torch.testing.assert_close(predictions[0].source.logits, module(x[None])[0])
    if robust.points == 1:
        torch.testing.assert_close(METHODS[method](classifier, **few)(x[None])[0].shape, torch.Size([5]))
    assert all(picture.shape == (height, width, 3) for picture in classifier.pictures(x[None]))


def test_rotations_of_a_rectangle_are_refused():
    classifier = build_classifier("rotation")
    module = classifier.module
    wide = mt.Classifier(module, size=(32, 48), mean=0.5, std=0.5)
    with pytest.raises(ConfigError, match=r"ttt: turns views by 90 degrees.*48 x 32.*use another method"):
        mt.method("ttt", wide)


def test_a_corruption_takes_a_rectangle():
    image = generated(40, 70, 3)
    assert all(
        corrupt(image, name, 3, sample_rng(0, 0)).shape == (40, 70, 3) for name in ("fog", "jpeg_compression")
    )


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ["source", "tta", "restore", "bn1", "memo"])
def test_images_come_in_the_modules_type(dtype, method):
    module, seen = net(3, 16, 16).to(dtype), set()
    module.register_forward_pre_hook(lambda _, x: seen.add(x[0].dtype))
    robust = mt.method(method, mt.Classifier(module, size=16, mean=0.5, std=0.5))
    prediction = robust.predict(generated(16, 16, 3))
    assert seen == {dtype} and prediction.probabilities.sum() == pytest.approx(1)


class Bytes(nn.Module):
    """A network that scales its pixels itself."""

    def __init__(self):
        super().__init__()
        self.net = net(3, 16, 16)

    def forward(self, pixels):
        if pixels.dtype != torch.uint8:
            raise TypeError(f"expected bytes, got {pixels.dtype}")
        return self.net((pixels.float() / 255 - 0.5) / 0.25)


@pytest.mark.parametrize("method", ["source", "restore", "memo"])
def test_a_module_of_bytes_gets_the_pixels(method):
    module = Bytes().eval()
    classifier = mt.Classifier(module, size=16, input_dtype=torch.uint8)
    floats = mt.Classifier(module.net, size=16, mean=0.5, std=0.25)
    image = generated(16, 16, 3)
    prediction = mt.method(method, classifier).predict(image)
    torch.testing.assert_close(prediction.source.logits, mt.method("source", floats).predict(image).logits)
    if method == "memo":  # pixels of views are rounded
        assert prediction.adapted
        torch.testing.assert_close(
            prediction.logits, mt.Memo(floats).predict(image).logits, atol=0.05, rtol=0
        )
