"""`mt.corrupt` is the published corruption, and takes the calls of the package imagecorruptions."""

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

import memo_tta as mt
from memo_tta.api import corruption as module
from memo_tta.data.corruptions import CORRUPTIONS
from memo_tta.errors import ConfigError, InputError, MemoWarning, UnknownName
from tests.data.test_corruptions import DETERMINISTIC
from tests.data.test_corruptions_operations import assert_truncates, by_colorsys, zoomed_by_scipy

SMALL, LARGE = (32, 32), (70, 91)
FAMILIES = {SMALL: "cifar10c", LARGE: "imagenetc"}
SEVERITIES = (1, 2, 3, 4, 5)

pytestmark = pytest.mark.filterwarnings(f"ignore::{MemoWarning.__module__}.{MemoWarning.__name__}")  # frost


def image_of(shape: tuple[int, int], seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3)).astype(np.uint8)


def flat(value: int, shape: tuple[int, int]) -> np.ndarray:
    return np.full((*shape, 3), value, np.uint8)


def jpeg(image: np.ndarray, quality: float) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "jpeg", quality=int(quality), subsampling="4:2:0")
    return np.asarray(Image.open(file))


def pixelate(image: np.ndarray, scale: float) -> np.ndarray:
    height, width = image.shape[:2]
    coarse = Image.fromarray(image).resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
    return np.asarray(coarse.resize((width, height), Image.Resampling.BOX))


def contrast(image: np.ndarray, factor: float) -> np.ndarray:
    mean = (image / 255).mean(axis=(0, 1))
    return (image / 255 - mean) * factor + mean


def brightness(image: np.ndarray, delta: float) -> np.ndarray:
    return by_colorsys(image, lambda h, s, v: (h, s, min(v + delta, 1)))


def saturate(image: np.ndarray, factor: float, shift: float) -> np.ndarray:
    return by_colorsys(image, lambda h, s, v: (h, min(s * factor + shift, 1), v))


def gaussian_blur(image: np.ndarray, sigma: float) -> np.ndarray:
    planes = np.moveaxis(image / 255, 2, 0)
    blurred = [ndimage.gaussian_filter(plane, sigma, mode="nearest", truncate=4) for plane in planes]
    return np.stack(blurred, axis=2)


def defocus_blur(image: np.ndarray, radius: float, alias_sigma: float) -> np.ndarray:
    offsets = np.arange(-max(8, int(radius)), max(8, int(radius)) + 1)
    disk = (np.hypot(*np.meshgrid(offsets, offsets)) <= radius).astype(float)
    window = 1 if radius <= 8 else 2
    kernel = ndimage.gaussian_filter(disk / disk.sum(), alias_sigma, mode="mirror", radius=window)
    planes = np.moveaxis(image / 255, 2, 0)
    return np.stack([ndimage.correlate(plane, kernel, mode="mirror") for plane in planes], axis=2)


def zoom_blur(image: np.ndarray, *rounded: float) -> np.ndarray:
    # The published code steps with np.arange; at 1.25 the last bit decides the size of the enlarged image.
    factors = np.arange(1, 2, round(rounded[1] - rounded[0], 2))[: len(rounded)]
    np.testing.assert_allclose(factors, rounded)
    layers = [np.stack([zoomed_by_scipy(image[..., c] / 255, f) for c in range(3)], 2) for f in factors]
    return (image / 255 + sum(layers)) / (len(factors) + 1)


@pytest.mark.parametrize("shape", FAMILIES, ids=FAMILIES.values())
@pytest.mark.parametrize("reference", [jpeg, pixelate], ids=["jpeg_compression", "pixelate"])
def test_pixels_are_those_of_pillow(reference, shape, golden):
    name = "jpeg_compression" if reference is jpeg else "pixelate"
    image = image_of(shape)
    for severity in SEVERITIES:
        value = golden.json(f"constants/{FAMILIES[shape]}")["constants"][name][severity - 1]
        np.testing.assert_array_equal(mt.corrupt(image, name, severity), reference(image, value))


@pytest.mark.parametrize("shape", FAMILIES, ids=FAMILIES.values())
@pytest.mark.parametrize(
    "reference",
    [contrast, brightness, saturate, gaussian_blur, defocus_blur, zoom_blur],
    ids=lambda function: function.__name__,
)
def test_pixels_follow_the_published_formula_and_constants(reference, shape, golden):
    image = image_of(shape)
    for severity in SEVERITIES:
        levels = golden.json(f"constants/{FAMILIES[shape]}")["constants"][reference.__name__]
        exact = reference(image, *np.atleast_1d(levels[severity - 1]))
        assert_truncates(mt.corrupt(image, reference.__name__, severity), exact, slack=1e-3)


@pytest.mark.parametrize("shape", [(200, 200), (64, 64)], ids=["imagenetc", "cifar10c"])
def test_noise_has_the_published_strength(shape, golden):
    levels = golden.json(f"constants/{'imagenetc' if shape[0] > 64 else 'cifar10c'}")["constants"]
    for severity in (1, 2):
        noisy = mt.corrupt(flat(128, shape), "gaussian_noise", severity) / 255
        assert noisy.std() == pytest.approx(levels["gaussian_noise"][severity - 1], rel=0.05)
        speckled = mt.corrupt(flat(102, shape), "speckle_noise", severity) / 255
        assert speckled.std() == pytest.approx(0.4 * levels["speckle_noise"][severity - 1], rel=0.05)
        photons = mt.corrupt(flat(102, shape), "shot_noise", severity) / 255
        assert photons.var() == pytest.approx(0.4 / levels["shot_noise"][severity - 1], rel=0.1)
        dots = mt.corrupt(flat(102, shape), "impulse_noise", severity)
        assert (dots != 102).mean() == pytest.approx(levels["impulse_noise"][severity - 1], rel=0.2)


def test_motion_blur_is_that_of_imagemagick(golden, monkeypatch):
    vectors, published = golden.arrays("motion_blur"), golden.json("constants/cifar10c")["constants"]
    levels = [tuple(level) for level in published["motion_blur"]]
    compared = 0
    for case in golden.json("motion_blur")["cases"]:
        constants, source = (case["radius"], case["sigma"]), vectors[case["source"]]
        if constants in levels and source.ndim == 3 and abs(case["angle_deg"]) <= 45:

            class Angle:
                def uniform(self, low: float, high: float, degrees: float = case["angle_deg"]) -> float:
                    assert (low, high) == (-45, 45)
                    return degrees

            monkeypatch.setattr(module, "sample_rng", lambda *_: Angle())
            blurred = mt.corrupt(source, "motion_blur", levels.index(constants) + 1)
            np.testing.assert_array_equal(blurred, vectors[case["key"]])
            compared += 1
    assert compared >= 30


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_same_seed_and_image_give_the_same_pixels(name):
    image = image_of(SMALL)
    before = image.copy()
    first = mt.corrupt(image, name, 3)
    assert first.dtype == np.uint8 and first.shape == image.shape and (first != image).any()
    np.random.seed(1)
    np.testing.assert_array_equal(first, mt.corrupt(image, name, 3, seed=0))
    np.testing.assert_array_equal(image, before)
    assert np.array_equal(first, mt.corrupt(image, name, 3, seed=1)) == (name in DETERMINISTIC)


def test_other_images_and_severities_get_other_noise():
    dots = [
        mt.corrupt(flat(grey, SMALL), "impulse_noise", severity) != grey
        for grey, severity in ((100, 3), (101, 3), (100, 5))
    ]
    assert not np.array_equal(dots[0], dots[1])
    assert (dots[0] & ~dots[2]).any()  # with the same draws, the stronger noise would hold the weaker


def test_anything_that_people_call_an_image(tmp_path):
    image = image_of(SMALL)
    Image.fromarray(image).save(tmp_path / "photo.png")
    expected = mt.corrupt(image, "fog", 2)
    for one in (tmp_path / "photo.png", str(tmp_path / "photo.png"), Image.fromarray(image)):
        np.testing.assert_array_equal(mt.corrupt(one, "fog", 2), expected)
    grey = np.repeat(image[..., :1], 3, axis=2)
    np.testing.assert_array_equal(mt.corrupt(image[..., 0], "fog", 2), mt.corrupt(grey, "fog", 2))


def test_the_calls_of_imagecorruptions_work():
    from memo_tta import corrupt, get_corruption_names

    image = image_of(LARGE)
    expected = mt.corrupt(image, "gaussian_blur", 1)
    np.testing.assert_array_equal(corrupt(image, corruption_name="gaussian_blur", severity=1), expected)
    np.testing.assert_array_equal(corrupt(image, severity=1, corruption_number=16), expected)
    np.testing.assert_array_equal(corrupt(image, corruption_name="gaussian_blur"), expected)
    for number, name in enumerate(get_corruption_names("all")):
        np.testing.assert_array_equal(
            corrupt(image, corruption_number=np.int64(number), severity=np.int64(2)),  # pyright: ignore[reportArgumentType]
            corrupt(image, corruption_name=name, severity=2),
        )


def test_names_are_those_of_imagecorruptions():
    noise = ["gaussian_noise", "shot_noise", "impulse_noise"]
    blur = ["defocus_blur", "glass_blur", "motion_blur", "zoom_blur"]
    weather = ["snow", "frost", "fog", "brightness"]
    digital = ["contrast", "elastic_transform", "pixelate", "jpeg_compression"]
    validation = ["speckle_noise", "gaussian_blur", "spatter", "saturate"]
    common = noise + blur + weather + digital
    assert mt.get_corruption_names() == mt.get_corruption_names("common") == common
    assert mt.get_corruption_names("all") == common + validation
    for subset, names in {"noise": noise, "blur": blur, "weather": weather, "digital": digital}.items():
        assert mt.get_corruption_names(subset) == names
    assert mt.get_corruption_names("validation") == validation
    with pytest.raises(UnknownName, match=r"unknown subset of the corruptions 'nois': .*'noise'"):
        mt.get_corruption_names("nois")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ConfigError, "expected one of name, corruption_name and corruption_number, got none"),
        ({"name": "fog", "corruption_name": "fog"}, ConfigError, "got name='fog' and corruption_name='fog'"),
        ({"corruption_name": "fog", "corruption_number": 9}, ConfigError, "and corruption_number=9"),
        ({"name": 3}, ConfigError, "name: expected the name of a corruption, got 3: .* severity=3"),
        ({"name": "fogg"}, UnknownName, "unknown corruption 'fogg': .*did you mean 'fog'"),
        *(
            ({"corruption_number": number}, ConfigError, r"corruption_number: expected .* 0\.\.18, got")
            for number in (-1, 19, 2.0, True, "3")
        ),
        *(
            ({"name": "fog", "severity": severity}, ConfigError, r"severity: expected 1\.\.5, got")
            for severity in (0, 6, "3", None, 2.5)
        ),
        *(
            ({"name": "fog", "seed": seed}, ConfigError, "seed: expected a whole number of at least 0, got")
            for seed in (-1, 1.0, "a", None)
        ),
    ],
)
def test_wrong_arguments_say_what_was_expected(arguments, error, message):
    with pytest.raises(error, match=message):
        mt.corrupt(image_of(SMALL), **arguments)


def test_what_is_no_image_is_refused():
    for wrong in ([[0]], None, np.zeros((4, 4, 3), np.uint8)):
        with pytest.raises(InputError, match="image"):
            mt.corrupt(wrong, "fog")  # pyright: ignore[reportArgumentType]


def test_without_opencv_the_message_says_what_to_install():
    code = """
import sys
import numpy as np
sys.modules["cv2"] = None
import memo_tta as mt
try:
    mt.corrupt(np.zeros((32, 32, 3), np.uint8), "fog")
except mt.MemoError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'memo-tta[corruptions]'" in done.stdout
