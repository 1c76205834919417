"""An image file that a client sent: opened, checked, and decoded within the limits of its request."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from memo_tta.errors import InputError
from memo_tta.image import read_image
from memo_tta.service.api_errors import ApiError

# Recognised by content; the file's name and declared type are ignored. Rarer formats are left out because
# their decoders are less tested.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
DETAIL = 4  # times the model's side: what a random crop of an eighth of the image still needs
READ_BYTES = 512  # decoded between two checks; in a file of many passes over the image, a third of a second
BYTES_PER_PIXEL = 7  # Pillow's four, and three of the result

Check = Callable[[], None]


@dataclass(frozen=True)
class PixelLimits:
    """How large an image may be, and how much of it the model needs."""

    most: int  # pixels, before and after resizing
    side: int  # to which the shorter side is resized

    def check(self, width: int, height: int) -> None:
        """Raise an ApiError if an image of this size is too large, or too narrow to be resized."""
        if width * height > self.most:
            raise self.too_many()
        if self.side**2 * max(width, height) > self.most * min(width, height):
            raise ApiError(
                "too_many_pixels",
                f"image: {width} x {height} pixels are too narrow: crop the image to what it shows.",
            )

    def too_many(self) -> ApiError:
        return ApiError(
            "too_many_pixels",
            f"image: has more than the {self.most / 1e6:g} megapixels allowed: send a smaller image.",
        )


class UploadedImage:
    """An image file of which only the header has been read."""

    def __init__(self, data: bytes | None, limits: PixelLimits):
        if not data:
            raise ApiError("invalid", "image: expected a file, got nothing")
        self._file, self._limits = _CheckedFile(data), limits
        opened = _open(self._file, limits)
        if isinstance(opened, ApiError):
            raise opened
        self._image = opened
        limits.check(*opened.size)
        opened.decodermaxblock = READ_BYTES

    @property
    def pixels(self) -> int:
        return self._image.width * self._image.height

    def decode(self, check: Check) -> np.ndarray:
        """Return the pixels, reduced if the model needs far fewer, and free the file.

        `check` is called again and again, and stops the decoding by raising.
        """
        self._file.check = check
        try:
            check()
            return read_image(self._image, DETAIL * self._limits.side)
        except InputError:
            check()  # if it stopped the decoding, Pillow's error says nothing about the image
            raise
        finally:
            del self._file.check  # which may hold this image
            self._image.close()


class _CheckedFile(io.BytesIO):
    """A file in memory that calls `check` before each read."""

    check: Check = staticmethod(lambda: None)

    def read(self, size: int | None = -1, /) -> bytes:
        self.check()
        return super().read(size)


def _open(file: io.BytesIO, limits: PixelLimits) -> ImageFile | ApiError:
    """Return the opened image, or an error whose context is not Pillow's, which would keep the file."""
    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        return ApiError("unsupported_type", f"image: unknown format; expected one of {', '.join(FORMATS)}")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return limits.too_many()
    except MemoryError:
        raise
    except Exception:  # Pillow does not say which exceptions damaged bytes can raise
        return ApiError("damaged_image", "image: cannot be read: is it truncated or damaged?")
