"""Validation shifts of our own, against definitions, Pillow and scipy; none of them is taken unless named."""

import numpy as np
import pytest
from PIL import Image
from scipy import fft, ndimage

from memo_tta.data.catalog import load_dataset
from memo_tta.data.corruptions import CORRUPTIONS, OWN_VALIDATION, SEVERITIES, VALIDATION, corrupt
from memo_tta.data.corruptions import own_validation as own
from memo_tta.data.corruptions.operations import OWN_OPERATIONS
from memo_tta.data.corruptions.severity import OWN_LARGE, OWN_SMALL
from memo_tta.data.sample_images import load_sample
from memo_tta.seeding import sample_rng

SHAPES = [(32, 32), (45, 61), (8, 13), (224, 224)]
PICTURE = load_sample()[4].image
GREY = np.full((200, 200, 3), 102, np.uint8)


def rng(seed=0):
    return sample_rng(seed, "own")


def picture(height: int, width: int) -> np.ndarray:
    return np.asarray(Image.fromarray(PICTURE).resize((width, height), Image.Resampling.BICUBIC))


def test_they_are_apart_from_the_published_ones():
    assert VALIDATION == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert not set(OWN_VALIDATION) & set(CORRUPTIONS)
    assert tuple(OWN_OPERATIONS) == tuple(OWN_SMALL) == OWN_VALIDATION and set(OWN_LARGE) == set(
        OWN_VALIDATION
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OWN_VALIDATION)
def test_every_level_changes_a_copy_and_depends_on_the_rng_alone(name, shape):
    image = picture(*shape)
    before = image.copy()
    for level in SEVERITIES if max(shape) < 100 else (1, 5):
        changed = corrupt(image, name, level, sample_rng(level, name))
        assert changed.dtype == np.uint8 and changed.shape == image.shape and (changed != image).any()
        np.random.seed(level)
        np.testing.assert_array_equal(changed, corrupt(image, name, level, sample_rng(level, name)))
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("side", [32, 224])
@pytest.mark.parametrize("name", OWN_VALIDATION)
def test_each_level_changes_more_than_the_one_before(name, side):
    image = picture(side, side).astype(float)
    changes = [
        np.mean(
            [
                abs(corrupt(image.astype(np.uint8), name, level, rng(seed)) - image).mean()
                for seed in range(24)
            ]
        )
        for level in SEVERITIES
    ]
    assert changes == sorted(changes) and changes[0] > 0.5


def test_they_can_be_loaded_by_name():
    sample = load_dataset("sample+haze:3")[7]
    expected = corrupt(load_sample()[7].image, "haze", 3, sample_rng(0, f"haze 3 {sample.id}"))
    np.testing.assert_array_equal(sample.image, expected)


def test_haze_leaves_less_of_the_image_where_it_is_thicker():
    black, white = (own.haze(np.full((40, 40, 3), value, np.uint8), rng(), 1.0) / 255 for value in (0, 255))
    transmission = (white - black).mean(axis=2)
    assert np.exp(-1.4) - 0.01 < transmission.min() < transmission.max() < np.exp(-0.6) + 0.01
    airlight = (black / (1 - transmission[..., None])).reshape(-1, 3)
    np.testing.assert_allclose(airlight, np.broadcast_to(airlight.mean(axis=0), airlight.shape), atol=0.02)
    assert np.ptp(transmission) > 0.05 and abs(np.diff(transmission, axis=0)).max() < 0.05


def test_a_cast_is_a_straight_line_per_colour():
    changed = own.colour_cast(PICTURE, rng(), 0.5)
    factors = []
    for channel in range(3):
        slope, lift = np.polyfit(PICTURE[..., channel].ravel(), changed[..., channel].ravel(), 1)
        assert abs(changed[..., channel] - slope * PICTURE[..., channel] - lift).max() < 1.1
        factors.append(slope)
    np.testing.assert_allclose(sorted(factors), [0.5, 0.65, 0.8], atol=0.01)


def test_low_light_is_a_power_and_a_factor_with_noise():
    changed = own.low_light(GREY, rng(), 0.5, 1.2, 0.01) / 255
    assert changed.mean() == pytest.approx(0.5 * 0.4**1.2 - 0.5 / 255, abs=0.001)
    assert changed.std() == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(("degrees", "reach"), [(0, (0, 2)), (90, (2, 0)), (45, (1.414, 1.414))])
def test_the_kernel_is_a_line(degrees, reach):
    kernel = own.line_kernel(4.0, np.deg2rad(degrees))
    y, x = np.indices(kernel.shape) - kernel.shape[0] // 2
    assert kernel.sum() == pytest.approx(1)
    assert abs((kernel * y).sum()) < 1e-9 and abs((kernel * x).sum()) < 1e-9
    # A line of length 4 has the variance 16 / 12 along it, to which linear sharing adds up to a quarter.
    for axis, half in zip((y, x), reach, strict=True):
        assert (kernel * axis**2).sum() == pytest.approx(half**2 / 3, abs=0.26)
    assert np.sign((kernel * x * y).sum().round(3)) == (-1 if degrees == 45 else 0)


def test_line_blur_spreads_a_point_into_the_kernel():
    point = np.zeros((21, 21, 3), np.uint8)
    point[10, 10] = 255
    angle = rng().uniform(0, np.pi)
    spread = own.line_blur(point, rng(), 5.0)[..., 0] / 255
    wanted = ndimage.convolve(point[..., 0] / 255, own.line_kernel(5.0, angle))
    assert abs(spread - wanted).max() <= 1 / 255


def test_the_cells_of_a_mosaic_are_means_of_its_pixels():
    changed = own.mosaic(PICTURE, rng(), 1.6).astype(float)
    same_row = (np.diff(changed, axis=0) == 0).all(axis=(1, 2))
    same_column = (np.diff(changed, axis=1) == 0).all(axis=(0, 2))
    for same in (same_row, same_column):
        assert 1 / (1 - same.mean()) == pytest.approx(1.6, rel=0.12)
    row, column = (np.r_[0, np.cumsum(~same)] for same in (same_row, same_column))
    for cell in range(6):
        block = PICTURE[np.ix_(row == cell, column == cell)].mean(axis=(0, 1))
        shown = changed[np.ix_(row == cell, column == cell)][0, 0]
        np.testing.assert_array_equal(shown, np.floor(block + 1e-6))


def test_the_mosaic_of_whole_cells_is_pillows():
    cells = own.cells(32, 4, 0.0)
    ours = np.tensordot(cells, cells @ PICTURE.astype(float), axes=(1, 0))
    small = Image.fromarray(PICTURE).resize((8, 8), Image.Resampling.BOX)
    theirs = np.asarray(small.resize((32, 32), Image.Resampling.NEAREST), float)
    assert abs(ours - theirs).max() <= 1  # Pillow rounds after rows and after columns


@pytest.mark.parametrize("step", [6, 24])
def test_blocks_keep_whole_steps_of_each_frequency(step):
    changed = own.dct_blocks(PICTURE // 2 + 60, rng(), step).astype(float)
    grey = changed.sum(axis=2) / np.sqrt(3)
    found = np.asarray(fft.dctn(grey[:8, 8:16], norm="ortho"))
    steps = step * (1 + 0.5 * np.add.outer(np.arange(8), np.arange(8)))
    assert abs(found - np.rint(found / steps) * steps).max() < 3  # rounding to 8 bits
    assert abs(found).max() > step


def test_jitter_moves_a_ramp_by_its_distance():
    ramp = np.broadcast_to(np.arange(60, 200, dtype=np.uint8)[:, None], (140, 140))[..., None].repeat(
        3, axis=2
    )
    moved = own.jitter(ramp, rng(), 2.0, 1e-3).astype(float)[10:-10] - ramp[10:-10]
    assert moved.std() == pytest.approx(2, rel=0.05)
    assert abs(np.corrcoef(moved[:-1, :, 0].ravel(), moved[1:, :, 0].ravel())[0, 1]) < 0.03
