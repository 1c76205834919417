"""The table of corruptions: names, constants, randomness, frost pictures, errors."""

import subprocess
import sys
import warnings
from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image

from memo_tta.data.corruptions import CORRUPTIONS, SEVERITIES, TEST, VALIDATION, corrupt, frost
from memo_tta.data.corruptions.operations import OPERATIONS
from memo_tta.data.corruptions.severity import CIFAR, IMAGENET, constants
from memo_tta.errors import ConfigError, DataError, InputError, MemoWarning, UnknownName
from memo_tta.seeding import sample_rng

SEVERITIES_BY_SHAPE: dict[tuple[int, int], Sequence[int]] = {
    (32, 32): SEVERITIES,
    (45, 61): SEVERITIES,
    (224, 224): (1, 5),
    (131, 77): (1, 5),
}
PUBLISHED_SIZES = [(32, 32), (224, 224)]
DETERMINISTIC = {
    *("defocus_blur", "zoom_blur", "gaussian_blur"),
    *("brightness", "contrast", "saturate", "pixelate", "jpeg_compression"),
}


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return smooth colours with edges and fine texture, dark and bright, as in a photograph."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    channels = [0.5 + 0.35 * np.sin(7 * x + phase) * np.cos(5 * y - phase) for phase in (0, 1, 2.5)]
    image = np.stack(channels, axis=2)
    image[height // 4 : height // 2, width // 4 : width // 2] *= 0.4
    return ((image + rng.normal(0, 0.03, image.shape)).clip(0, 1) * 255).astype(np.uint8)


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """A folder with five frost pictures, each of one grey value: 0, 50, ... 200."""
    folder = tmp_path / "frost"
    folder.mkdir()
    for number, name in enumerate(frost.PHOTOGRAPHS):
        Image.new("RGB", (300, 260), (50 * number,) * 3).save(folder / name, quality=100)
    monkeypatch.setenv("MEMO_DATA", str(tmp_path))
    return folder


@pytest.fixture
def no_photographs(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMO_DATA", str(tmp_path))
    frost._warn_procedural.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoWarning)
        yield
    frost._warn_procedural.cache_clear()


@pytest.mark.parametrize(("family", "table"), [("cifar10c", CIFAR), ("imagenetc", IMAGENET)])
def test_constants_are_the_published_ones(golden, family, table):
    published = golden.json(f"constants/{family}")
    assert list(TEST) == published["test_corruptions"]
    assert list(VALIDATION) == published["validation_corruptions"]
    assert list(SEVERITIES) == published["severities"]
    assert list(table) == [*TEST, *VALIDATION]
    for name, levels in published["constants"].items():
        assert len(table[name]) == len(levels) == 5
        for ours, theirs in zip(table[name], levels, strict=True):
            flat = ours[0] if name == "zoom_blur" else ours
            assert np.shape(flat) == np.shape(np.atleast_1d(theirs)), name
            np.testing.assert_allclose(flat, np.atleast_1d(theirs), rtol=0, atol=1e-12, err_msg=name)


def test_zoom_factors_carry_the_rounding_of_arange():
    for table, steps in ((CIFAR, [0.01] * 5), (IMAGENET, [0.01, 0.01, 0.02, 0.02, 0.03])):
        for (factors,), step in zip(table["zoom_blur"], steps, strict=True):
            assert list(factors) == np.arange(1, 2, step)[: len(factors)].tolist()


def test_every_corruption_has_its_operation():
    assert list(OPERATIONS) == list(CORRUPTIONS)
    assert len(CORRUPTIONS) == 19


def test_images_up_to_64_pixels_take_the_constants_of_cifar():
    assert constants(np.zeros((64, 40, 3)), "contrast", 1) == (0.75,)
    assert constants(np.zeros((40, 65, 3)), "contrast", 1) == (0.4,)


@pytest.mark.parametrize("shape", SEVERITIES_BY_SHAPE)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_level_changes_a_copy_and_depends_on_the_rng_alone(name, shape, no_photographs):
    image = picture(*shape)
    before = image.copy()
    for level in SEVERITIES_BY_SHAPE[shape]:
        changed = corrupt(image, name, level, sample_rng(level, name))
        assert changed.dtype == np.uint8
        assert changed.shape == image.shape
        assert (changed != image).any()
        np.random.seed(level)
        np.testing.assert_array_equal(changed, corrupt(image, name, level, sample_rng(level, name)))
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("shape", [(8, 8), (8, 13), (8, 101), (101, 8)])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_smallest_images_work(name, shape, no_photographs):
    for level in SEVERITIES:
        assert corrupt(picture(*shape), name, level, sample_rng(0, name)).shape == (*shape, 3)


@pytest.mark.parametrize("shape", PUBLISHED_SIZES)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_randomness_is_where_the_published_code_has_it(name, shape, no_photographs):
    one, other = (corrupt(picture(*shape), name, 5, sample_rng(seed, "")) for seed in (0, 1))
    assert np.array_equal(one, other) == (name in DETERMINISTIC)


# The constants of elastic_transform trade a large affine map for a fine warp, so they do not grow.
@pytest.mark.parametrize("shape", PUBLISHED_SIZES)
@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name != "elastic_transform"])
def test_level_5_changes_more_than_level_1(name, shape, no_photographs):
    change = {1: 0.0, 5: 0.0}
    for seed in range(3):
        image = picture(shape[0], shape[1], seed)
        for level in change:
            changed = corrupt(image, name, level, sample_rng(seed, name))
            change[level] += abs(changed - image.astype(float)).mean()
    assert change[5] > change[1] > 0


def test_frost_lays_a_random_photograph_over_the_image(photographs):
    assert frost.frost_source() == "photographs"
    image = np.full((32, 32, 3), 100, np.uint8)
    seen = set()
    for seed in range(40):
        changed = corrupt(image, "frost", 5, sample_rng(seed, "frost"))
        assert (changed == changed[0, 0]).all()
        seen.add(int(changed[0, 0, 0]))
    assert seen == {int(0.75 * 100 + 0.45 * grey) for grey in (0, 50, 100, 150, 200)}


@pytest.mark.parametrize(
    ("shape", "scale"), [((32, 32), 0.2), ((224, 224), 1), ((64, 64), 0.2), ((300, 70), 1)]
)
def test_frost_is_a_window_of_the_picture_shrunk_for_small_images(shape, scale, photographs):
    ramp = np.broadcast_to(np.arange(300) * 0.8, (260, 300)).astype(np.uint8)
    for name in frost.PHOTOGRAPHS:
        Image.fromarray(ramp).convert("RGB").save(photographs / name, quality=100)
    changed = corrupt(np.zeros((*shape, 3), np.uint8), "frost", 5, sample_rng(0, ""))
    weight = 0.45 if max(shape) <= 64 else 0.75
    # A picture that is smaller than the image is enlarged, which flattens the ramp.
    scale *= max(1, shape[0] / int(260 * scale), shape[1] / int(300 * scale))
    slope = (changed[0, -1, 0] - changed[0, 0, 0].astype(float)) / (shape[1] - 1)
    assert slope == pytest.approx(0.8 * weight / scale, rel=0.1)


def test_frost_without_photographs_warns_once_and_draws_pictures(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMO_DATA", str(tmp_path))
    frost._warn_procedural.cache_clear()
    assert frost.frost_source() == "procedural"
    with pytest.warns(MemoWarning, match="memo data get frost") as caught:
        first, again = frost.frost_pictures(), frost.frost_pictures(small=True)
    assert len(caught) == 1
    assert len(first) == len(again) == 5
    for picture in first:
        red, green, blue = picture.reshape(-1, 3).mean(axis=0)
        assert 100 < red < green < blue < 220  # the photographs: 78..201, 123..205, 135..214
        assert 15 < picture.mean(axis=2).std() < 45  # the photographs: 15..43
    assert not np.array_equal(first[0], first[1])


def test_a_damaged_photograph_says_what_to_do(photographs):
    (photographs / "frost3.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"frost3\.png.*run `memo data get frost`"):
        corrupt(picture(32, 32), "frost", 1, sample_rng(0, ""))


def test_an_unknown_corruption_lists_the_choices():
    with pytest.raises(UnknownName, match=r"unknown corruption 'snows': .*gaussian_noise.*'snow'\?"):
        corrupt(picture(32, 32), "snows", 1, sample_rng(0, ""))


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, "3", None])
def test_a_severity_outside_1_to_5_is_refused(severity):
    with pytest.raises(ConfigError, match=r"severity: expected 1\.\.5, got "):
        corrupt(picture(32, 32), "fog", severity, sample_rng(0, ""))


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (np.zeros((32, 32, 3)), r"got float64 \(32, 32, 3\)"),
        (np.zeros((32, 32), np.uint8), r"got uint8 \(32, 32\)"),
        (np.zeros((32, 32, 4), np.uint8), r"got uint8 \(32, 32, 4\)"),
        (np.zeros((32, 7, 3), np.uint8), "at least 8 pixels a side, got 7 x 32"),
        ([[0]], "got list"),
    ],
)
def test_what_is_no_8_bit_rgb_image_is_refused(image, found):
    with pytest.raises(InputError, match=f"image: expected .*{found}"):
        corrupt(image, "fog", 1, sample_rng(0, ""))


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_names_and_frost_source_do_without_opencv_and_scipy():
    code = "import sys, memo_tta.data.corruptions.frost; print({'cv2', 'scipy'} & set(sys.modules))"
    assert run_python(code).strip() == "set()"


@pytest.mark.parametrize("missing", ["cv2", "scipy"])
def test_without_opencv_or_scipy_the_message_says_what_to_install(missing):
    out = run_python(f"""
import sys
import numpy as np
from memo_tta.data.corruptions import corrupt
from memo_tta.errors import MissingExtra
sys.modules["{missing}"] = None
try:
    corrupt(np.zeros((32, 32, 3), np.uint8), "fog", 1, np.random.default_rng())
except MissingExtra as error:
    print(error)
""")
    assert missing in out
    assert "pip install 'memo-tta[corruptions]'" in out
