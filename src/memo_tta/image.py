"""Read an image of any kind as a uint8 RGB array."""

import io
import warnings
from collections.abc import Callable
from contextlib import closing
from os import PathLike
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from memo_tta.errors import InputError, MemoError
from memo_tta.registry import Registry

ImageLike = str | PathLike[str] | Image.Image | np.ndarray
Size = int | tuple[int, int]  # pixels per side of a square, or height and width

INTERPOLATIONS = Registry(
    "interpolation",
    {
        "nearest": Image.Resampling.NEAREST,
        "box": Image.Resampling.BOX,
        "bilinear": Image.Resampling.BILINEAR,
        "hamming": Image.Resampling.HAMMING,
        "bicubic": Image.Resampling.BICUBIC,
        "lanczos": Image.Resampling.LANCZOS,
    },
)

MAX_PIXELS = 100_000_000
BAND_PIXELS = 2**20  # converted to RGB at once
BACKGROUND = (255, 255, 255)  # of transparent pixels: white, as in most image viewers

UPRIGHT = 1
# How to turn the pixels (height, width, 3) upright, by the orientation in the metadata.
TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}


def read_image(source: ImageLike, shortest: int | None = None) -> np.ndarray:
    """Return a path, PIL image or array as a uint8 RGB array of shape (height, width, 3).

    A PIL image whose shorter side has a multiple of `shortest` pixels is reduced by that whole factor.
    """
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, Image.Image):
        return _from_pil(source, "image", shortest)
    if isinstance(source, str | PathLike):
        return _from_file(Path(source))
    raise InputError(f"image: expected a path, PIL image or uint8 array, got {type(source).__name__}")


def height_and_width(size: Size) -> tuple[int, int]:
    """Return a size as height and width."""
    return (size, size) if isinstance(size, int) else size


def read_channels(source: ImageLike, channels: int) -> np.ndarray:
    """Return an image as uint8 (height, width, channels); only arrays can have 2 or 4 channels."""
    if channels == 3:
        return read_image(source)
    if channels == 1:
        return _to_grey(read_image(source))
    if not isinstance(source, np.ndarray) or source.ndim != 3 or source.shape[2] != channels:
        got = f"shape {source.shape}" if isinstance(source, np.ndarray) else type(source).__name__
        raise InputError(
            f"image: expected an array of shape (height, width, {channels}), got {got}: "
            f"the model takes {channels} channels, which only arrays have"
        )
    check_pixels(source.shape[1], source.shape[0], "array")
    return np.ascontiguousarray(_as_uint8(source, "array"))


def to_rgb(image: np.ndarray) -> np.ndarray:
    """Return a uint8 image of any channels as RGB, to look at; those that are not colours are averaged."""
    if image.shape[2] == 3:
        return image
    return np.repeat(image.mean(axis=2, keepdims=True).round().astype(np.uint8), 3, axis=2)


def fit_image(
    image: np.ndarray, size: Size, resize: Size | None = None, interpolation: str = "bilinear"
) -> np.ndarray:
    """Resize a uint8 (height, width, channels) image, then crop its centre to `size`.

    The shorter side is resized to `resize`; a pair is the size of the whole image, whose proportions then
    change. Without it, the image is made just large enough for the crop.
    """
    height, width = height_and_width(size)
    resized = _resized(image.shape[:2], (height, width), resize)
    if resized != image.shape[:2]:
        check_pixels(resized[1], resized[0], f"image of {image.shape[1]} x {image.shape[0]} pixels, resized")
        image = _resize(image, resized, interpolation)
    top, left = round((image.shape[0] - height) / 2), round((image.shape[1] - width) / 2)
    return image[top : top + height, left : left + width]


def _resized(shape: tuple[int, int], crop: tuple[int, int], resize: Size | None) -> tuple[int, int]:
    """Return the height and width after resizing; the longer side is truncated, as torchvision does."""
    if isinstance(resize, tuple):
        return resize
    height, width = shape
    if resize is not None:
        shorter = min(shape)
        return resize * height // shorter, resize * width // shorter
    if crop[0] * width >= crop[1] * height:
        return crop[0], crop[0] * width // height
    return crop[1] * height // width, crop[1]


def _resize(image: np.ndarray, size: tuple[int, int], interpolation: str) -> np.ndarray:
    """Resize each channel on its own: Pillow would take 2 or 4 channels for colours with transparency."""
    filtering, shape = INTERPOLATIONS[interpolation], (size[1], size[0])
    if image.shape[2] == 3:
        return np.asarray(Image.fromarray(image).resize(shape, filtering))
    planes = [Image.fromarray(plane).resize(shape, filtering) for plane in np.moveaxis(image, 2, 0)]
    return np.stack([np.asarray(plane) for plane in planes], axis=2)


def _to_grey(image: np.ndarray) -> np.ndarray:
    """Return the luminance (ITU-R 601-2) of a uint8 RGB image, (height, width, 1)."""
    return np.array(Image.fromarray(image).convert("L"))[..., None]


def _from_file(path: Path) -> np.ndarray:
    if path.is_dir():
        raise InputError(f"{path}: expected an image file, got a directory")
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as error:  # a path may be no path at all
        raise _damaged(str(path), error) from None
    return _decode(path, size, str(path))


def decode_image(content: bytes, name: str) -> np.ndarray:
    """Return the content of an image file as a uint8 RGB array; errors call it by this name."""
    return _decode(io.BytesIO(content), len(content), name)


def _decode(file: Path | io.BytesIO, size: int, name: str) -> np.ndarray:
    """Return the image of a file of `size` bytes."""
    if size == 0:
        raise InputError(f"{name}: the file is empty")
    try:
        with warnings.catch_warnings():
            # Pillow warns at a lower limit than ours, and of damaged metadata, which nothing here uses.
            warnings.simplefilter("ignore")
            with closing(Image.open(file)) as image:  # frees its pixels even if the error is kept
                return _from_pil(image, name)
    except (MemoError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise InputError(f"{name}: not an image, or in a format that Pillow cannot read") from None
    except Image.DecompressionBombError:
        raise _too_large(name) from None
    except Exception as error:  # Pillow does not say which exceptions damaged bytes can raise
        raise _damaged(name, error) from None


def _from_pil(image: Image.Image, name: str, shortest: int | None = None) -> np.ndarray:
    check_pixels(*image.size, name)
    try:
        return _to_rgb(image, name, shortest)
    except (MemoError, MemoryError):
        raise
    except Exception as error:
        problem = _damaged(name, error)
    # Raised outside the handler: as its context, Pillow's exception would keep the pixels alive.
    raise problem


def _to_rgb(image: Image.Image, name: str, shortest: int | None) -> np.ndarray:
    if shortest is not None:
        # JPEG alone can be decoded at a half, a quarter or an eighth of its size, at a fraction of the cost.
        factor = _whole_factor(image, shortest)
        image.draft(None, (image.width // factor, image.height // factor))
    image.load()
    turn = TURNS.get(_orientation(image))
    if image.mode.startswith(("I", "F")):
        pixels = _from_array(_high_depth_pixels(image, name), name)
    else:
        pixels = _rgb_pixels(image, 1 if shortest is None else _whole_factor(image, shortest))
    return pixels if turn is None else np.ascontiguousarray(turn(pixels))


def _whole_factor(image: Image.Image, shortest: int) -> int:
    return max(1, min(image.size) // shortest)


def _rgb_pixels(image: Image.Image, factor: int) -> np.ndarray:
    """Return RGB pixels, each the mean of `factor` x `factor`, on the background where it is transparent."""
    width, height = image.size
    pixels = np.empty((-(-height // factor), -(-width // factor), 3), np.uint8)
    # In bands: copies of the whole image would take several times its memory.
    rows = max(1, BAND_PIXELS // (width * factor))
    for top in range(0, len(pixels), rows):
        band = image.crop((0, top * factor, width, min((top + rows) * factor, height)))
        if band.has_transparency_data:
            page = Image.new("RGBA", band.size, (*BACKGROUND, 255))
            band = Image.alpha_composite(page, band.convert("RGBA"))
        band = band.convert("RGB")
        pixels[top : top + rows] = np.asarray(band if factor == 1 else band.reduce(factor))
    return pixels


def _orientation(image: Image.Image) -> int:
    """Return how the camera was held, from the metadata; upright if they are damaged."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation, UPRIGHT)
    except MemoryError:
        raise
    except Exception:  # Pillow does not say which exceptions damaged metadata can raise
        return UPRIGHT


def _damaged(name: str, error: Exception) -> InputError:
    return InputError(f"{name}: cannot be decoded; it may be truncated or damaged ({error})")


def _high_depth_pixels(image: Image.Image, name: str) -> np.ndarray:
    """Return greyscale pixels of more than 8 bits as uint16 or float32, whose range of values is known."""
    pixels = np.array(image)
    if image.mode != "I":
        return pixels.astype(np.float32) if image.mode == "F" else pixels.astype(np.uint16)
    if pixels.min() < 0 or pixels.max() > 65535:
        raise InputError(
            f"{name}: expected 16-bit values 0..65535, got {pixels.min()}..{pixels.max()}: "
            "convert the image to 8 or 16 bits"
        )
    return pixels.astype(np.uint16)


def _from_array(array: np.ndarray, name: str = "array") -> np.ndarray:
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3:
        raise InputError(f"{name}: expected shape (height, width, 3), got {array.shape}{_hint(array)}")
    height, width, channels = array.shape
    if array.size == 0:
        raise InputError(f"{name}: the image has no pixels, its shape is {array.shape}")
    if channels not in (1, 3, 4):
        raise InputError(f"{name}: expected 1, 3 or 4 channels last, got shape {array.shape}{_hint(array)}")
    check_pixels(width, height, name)
    pixels = _as_uint8(array, name)
    if channels == 1:
        return np.repeat(pixels, 3, axis=2)
    if channels == 4:
        return _from_pil(Image.fromarray(pixels), name)
    return np.ascontiguousarray(pixels)


def _as_uint8(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return np.round(array / 257).astype(np.uint8)
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if np.issubdtype(array.dtype, np.floating):
        if not np.isfinite(array).all():
            raise InputError(f"{name}: contains NaN or infinite values")
        if array.min() < 0 or array.max() > 1:
            raise InputError(
                f"{name}: float values must lie in 0..1, got {array.min():g}..{array.max():g}: "
                "pass uint8 values 0..255, or call the method itself with a normalised tensor"
            )
        return np.round(array * 255).astype(np.uint8)
    raise InputError(f"{name}: expected uint8, uint16 or float values, got {array.dtype}")


def _hint(array: np.ndarray) -> str:
    if array.ndim == 4:
        return ": pass several images as a list"
    if array.ndim == 3 and array.shape[0] in (1, 3):
        return ": put the channels last with array.transpose(1, 2, 0)"
    return ""


def check_pixels(width: int, height: int, name: str) -> None:
    """Raise InputError if an image of this size has no pixels or too many."""
    if width * height == 0:
        raise InputError(f"{name}: the image has no pixels, its size is {width} x {height}")
    if width * height >= MAX_PIXELS:
        raise _too_large(name, f" ({width} x {height})")


def _too_large(name: str, size: str = "") -> InputError:
    return InputError(f"{name}: 100 megapixels or more{size}: make it smaller first")
