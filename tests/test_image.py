"""Reading images: every kind becomes uint8 RGB, and errors say what is wrong."""

import io
import resource
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from memo_tta import image as image_module
from memo_tta.errors import InputError
from memo_tta.image import read_image
from tests.conftest import times

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


@pytest.mark.parametrize("orientation", [*range(10), 77])
@pytest.mark.parametrize("deep", [False, True])
def test_images_are_turned_as_pillow_turns_them(tmp_path, orientation, deep):
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = GREY.astype(np.uint16) * 257 if deep else COLOUR
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as image:
        expected = read_image(np.array(ImageOps.exif_transpose(image)))
    np.testing.assert_array_equal(read_image(tmp_path / "turned.png"), expected)


@pytest.mark.parametrize("damaged", [b"", b"MM", b"MM\0*\0\0\0\x08\xff\xff", b"II*\0\xff\xff\xff\xff" * 9])
def test_damaged_metadata_turn_nothing(tmp_path, damaged):
    for name in ("a.jpg", "a.webp", "a.png"):
        Image.fromarray(COLOUR).save(tmp_path / name, exif=b"Exif\0\0" + damaged)
        assert read_image(tmp_path / name).shape == COLOUR.shape


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "CMYK"])
def test_bands_and_whole_image_are_the_same(monkeypatch, mode):
    image = Image.fromarray(RNG.integers(0, 256, (37, 23, 3), dtype=np.uint8)).convert(mode)
    if mode == "RGBA":
        image.putalpha(Image.fromarray(RNG.integers(0, 256, (37, 23), dtype=np.uint8)))
    for factor in (1, 2, 3, 5):
        whole = read_image(image, shortest=23 // factor)
        with monkeypatch.context() as patch:
            patch.setattr(image_module, "BAND_PIXELS", 50)
            np.testing.assert_array_equal(read_image(image, shortest=23 // factor), whole)
        page = Image.new("RGBA", image.size, (255, 255, 255, 255))
        shown = Image.alpha_composite(page, image.convert("RGBA")) if mode == "RGBA" else image
        np.testing.assert_array_equal(whole, np.asarray(shown.convert("RGB").reduce(factor)))


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


def encoded(file_format: str, side: int, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(file, file_format, **options)
    return file.getvalue()


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, change, move or insert some bytes."""
    data, start = bytearray(content), int(rng.integers(len(content)))
    match rng.integers(5):
        case 0:
            del data[start:]
        case 1:
            for position in rng.integers(0, len(data), int(rng.integers(1, 30))):
                data[position] = rng.integers(256)
        case 2:
            data[start : start + 64] = bytes(len(data[start : start + 64]))
        case 3:
            data[start:start] = rng.bytes(int(rng.integers(1, 200)))
        case 4:  # the headers, with which decoders do most
            for position in rng.integers(0, min(len(data), 120), 4):
                data[position] = rng.integers(256)
    return bytes(data)


EXIF = Image.Exif()
EXIF[0x0112], EXIF[0x010E], EXIF[0x8769] = 6, "described", {0x9003: "2020:01:01 00:00:00", 0x920A: 1.5}
FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("PNG", {"exif": EXIF}),
    ("JPEG", {"exif": EXIF}),
    ("JPEG", {"progressive": True}),
    ("WEBP", {"exif": EXIF}),
    ("AVIF", {"exif": EXIF}),
    ("GIF", {}),
    ("BMP", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("PPM", {}),
    ("JPEG2000", {}),
    ("ICO", {}),
    ("TGA", {"compression": "tga_rle"}),
]


def test_damaged_images_are_read_or_refused(tmp_path):
    """Whatever Pillow raises on damaged bytes, the user gets one kind of error, and no warning."""
    rng, path, refused, most = np.random.default_rng(0), tmp_path / "image", 0, peak_memory()
    wholes = [encoded(name, 40, **options) for name, options in FORMATS]
    for number in range(times(600, 20_000)):
        path.write_bytes(damaged(wholes[number % len(wholes)], rng))
        try:
            assert read_image(path).dtype == np.uint8
        except InputError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > times(100, 4000) and peak_memory() - most < 256 * 2**20


def peak_memory() -> int:
    """Return the most bytes that this process has had in memory."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("error", [RuntimeError, struct.error, KeyError, TypeError, ZeroDivisionError])
def test_whatever_a_decoder_raises_is_one_error(tmp_path, monkeypatch, error):
    (tmp_path / "a.png").write_bytes(encoded("PNG", 8))

    def fail(*_):
        raise error("broken")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
    with pytest.raises(InputError, match=r"a\.png: cannot be decoded"):
        read_image(tmp_path / "a.png")
