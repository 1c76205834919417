"""From the body of a request to an image and options; nothing that the client says of them is trusted."""

import base64
import binascii
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request

from memo_tta.service.api_errors import ApiError

# By content, whatever name or type the file came with. Formats that are seldom photographs are left out:
# their decoders are less used, so less tried.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_FIELDS = 16

Fields = TypeVar("Fields", bound=BaseModel)


@dataclass(frozen=True)
class Form(Generic[Fields]):
    """The fields of a multipart body, and its image if there is one."""

    fields: Fields
    image: bytes | None


async def read_form(request: Request, fields: type[Fields]) -> Form[Fields]:
    """A multipart body with at most one file, `image`; each field once, and none that is unknown."""
    async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
        texts, image = dict[str, str](), None
        for name, value in form.multi_items():
            if name in texts or (name == "image" and image is not None):
                raise ApiError("invalid", f"{name[:40]}: given more than once")
            if isinstance(value, UploadFile):
                if name != "image":
                    raise ApiError("invalid", f"{name[:40]}: a file, where only image may be one")
                image = await value.read()
            elif name == "image":
                raise ApiError("invalid", "image: expected a file, got text")
            else:
                texts[name] = value
    for name, text in texts.items():
        field = fields.model_fields.get(name)
        if field is not None and field.annotation is bool and text not in ("true", "false"):
            raise ApiError("invalid", f"{name}: expected true or false")  # pydantic also takes yes, on and 1
    # An empty file is what a browser sends for a file that was not chosen.
    return Form(checked(fields.model_validate_strings, texts), image or None)


def read_json(body: bytes, fields: type[Fields]) -> Fields:
    return checked(fields.model_validate_json, body)


Given = TypeVar("Given", bytes, Mapping[str, str])


def checked(validate: Callable[[Given], Fields], given: Given) -> Fields:
    """The first thing that is wrong, in words; what was given is not repeated."""
    try:
        return validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part)[:40] for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        kind = "bad_request" if first["type"] == "json_invalid" else "invalid"
        raise ApiError(kind, f"{place}: {message}" if place else message) from None


def from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError("invalid", "image: expected base64") from None


def opened(data: bytes | None, max_pixels: int) -> Image.Image:
    """An image whose format and size are known and allowed; its pixels are not decoded yet."""
    if not data:
        raise ApiError("invalid", "image: expected a file, got nothing")
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        known = ", ".join(FORMATS)
        raise ApiError("unsupported_type", f"image: of no known format; expected one of {known}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many(max_pixels) from None
    except Exception:  # what a reader raises on damaged bytes is anybody's guess
        raise ApiError("damaged_image", "image: cannot be read: is it truncated or damaged?") from None
    width, height = image.size
    if width * height > max_pixels:
        raise _too_many(max_pixels)
    return image


def _too_many(max_pixels: int) -> ApiError:
    allowed = f"{max_pixels / 1e6:g} megapixels"
    return ApiError(
        "too_many_pixels", f"image: has more than the {allowed} that are allowed: make it smaller."
    )
