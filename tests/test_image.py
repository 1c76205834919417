"""Reading images: every kind becomes uint8 RGB, and errors say what is wrong."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from memo_tta.errors import InputError
from memo_tta.image import read_image

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (6, 4, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (6, 4), dtype=np.uint8)


def test_colour_is_taken_as_it_is(tmp_path):
    Image.fromarray(COLOUR).save(tmp_path / "a.png")
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(COLOUR), COLOUR):
        np.testing.assert_array_equal(read_image(source), COLOUR)


def test_grey_has_three_equal_channels(tmp_path):
    Image.fromarray(GREY).save(tmp_path / "a.png")
    for source in (tmp_path / "a.png", Image.fromarray(GREY), GREY, GREY[..., None]):
        np.testing.assert_array_equal(read_image(source), np.stack([GREY] * 3, axis=-1))


def test_palette_shows_its_colours():
    palette = Image.fromarray(COLOUR).quantize(256)
    np.testing.assert_array_equal(read_image(palette), np.asarray(palette.convert("RGB")))


def test_transparent_pixels_show_a_white_page():
    alpha = np.array([[0, 255, 128]], dtype=np.uint8)
    rgba = np.concatenate([np.zeros((1, 3, 3), np.uint8), alpha[..., None]], axis=2)
    for source in (rgba, Image.fromarray(rgba)):
        assert read_image(source)[0, :, 0].tolist() == [255, 0, 127]
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putdata([0, 1])
    palette.info["transparency"] = 0
    assert read_image(palette).tolist() == [[[255] * 3, [40, 50, 60]]]


def test_sixteen_bits_keep_their_range(tmp_path):
    deep = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    for source in (
        deep,
        Image.fromarray(deep),
        tmp_path / "deep.png",
        Image.fromarray(deep.astype(np.int32)),
    ):
        assert read_image(source)[0, :, 1].tolist() == [0, 1, 128, 255]


def test_exif_rotation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the image is shown rotated by 90 degrees
    Image.fromarray(COLOUR).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "turned.png"), np.rot90(COLOUR, -1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F"])
def test_every_mode_gives_rgb(mode):
    image = Image.fromarray(COLOUR).convert(mode)
    if mode == "F":
        image = image.point(lambda value: value * (1 / 255) + 0)
    pixels = read_image(image)
    assert pixels.shape == (6, 4, 3) and pixels.dtype == np.uint8


@given(st.integers(0, 255))
def test_float_and_bool_arrays_mean_what_they_show(value):
    assert read_image(np.full((1, 1, 3), value / 255)).tolist() == [[[value] * 3]]
    assert read_image(np.full((1, 1), value > 100)).tolist() == [[[255 * (value > 100)] * 3]]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 4, 3), np.uint8), r"no pixels, its shape is \(0, 4, 3\)"),
        (np.full((2, 2, 3), 1.5), r"float values must lie in 0..1, got 1.5..1.5"),
        (np.full((2, 2, 3), -0.1), r"must lie in 0..1"),
        (np.full((2, 2, 3), np.nan), "contains NaN"),
        (np.zeros((2, 2, 2), np.uint8), r"expected 1, 3 or 4 channels last, got shape \(2, 2, 2\)"),
        (np.zeros((3, 9, 9), np.uint8), "put the channels last with array.transpose"),
        (np.zeros((2, 9, 9, 3), np.uint8), "pass several images as a list"),
        (np.zeros((9,), np.uint8), r"expected shape \(height, width, 3\), got \(9,\)"),
        (np.zeros((2, 2, 3), np.int64), "expected uint8, uint16 or float values, got int64"),
        (np.broadcast_to(np.uint8(0), (10_000, 10_000, 3)), "100 megapixels or more"),
    ],
)
def test_arrays_that_are_no_image_say_why(array, message):
    with pytest.raises(InputError, match=message):
        read_image(array)


def test_other_things_are_no_image():
    number: Any = 3
    with pytest.raises(InputError, match="expected a path, PIL image or uint8 array, got int"):
        read_image(number)


def test_files_that_are_no_image_say_why(tmp_path):
    whole = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(whole, "PNG")
    cases = {"empty.png": b"", "text.png": b"hello", "truncated.png": whole.getvalue()[:-3000]}
    messages = {"empty.png": "is empty", "text.png": "not an image", "truncated.png": "cannot be decoded"}
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}: .*{messages[name]}"):
            read_image(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_image(tmp_path / "missing.png")
    with pytest.raises(InputError, match="got a directory"):
        read_image(tmp_path)


@pytest.mark.parametrize("size", [(10_000, 10_000), (20_000, 20_000)])
def test_huge_images_are_refused_before_they_are_decoded(tmp_path, size):
    path = tmp_path / "huge.png"
    Image.new("1", size).save(path)
    with pytest.raises(InputError, match="100 megapixels or more"):
        read_image(path)


@given(st.binary(max_size=200))
def test_any_bytes_give_an_image_or_a_clear_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "x.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.png"):
        read_image(path)
