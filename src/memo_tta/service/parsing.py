"""Parsing and validation of request bodies: from untrusted bytes to options and the bytes of an image."""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from memo_tta.service.api_errors import ApiError

MAX_FIELDS = 16
MAX_JSON_PARTS = 256  # commas, colons and brackets, beside those of the images
PARTS_PER_IMAGE = 4  # those of a data: URL, and the comma after it
MAX_DATA_HEADER = 256  # characters of a data: URL in which its comma must come
MAX_SHOWN = 40  # characters of a client's field name that a message repeats

Fields = TypeVar("Fields", bound=BaseModel)
Unvalidated = TypeVar("Unvalidated", bytes, Mapping[str, str])


@dataclass(frozen=True)
class Form(Generic[Fields]):
    """The fields of a multipart body, and the bytes of its image files."""

    fields: Fields
    images: list[bytes]

    @property
    def image(self) -> bytes | None:
        """The bytes of the only image file; None without one."""
        return (
            self.images[0] or None if self.images else None
        )  # browsers send an empty file if none was chosen


async def read_form(request: Request, model: type[Fields], max_images: int = 1) -> Form[Fields]:
    """Parse a multipart body: files named `image`, and no field twice or unknown to the model."""
    parser = MultiPartParser(request.headers, request.stream(), max_files=max_images, max_fields=MAX_FIELDS)
    texts, images = dict[str, str](), list[bytes]()
    try:
        form = await parser.parse()
        for name, value in form.multi_items():
            if name in texts:
                raise ApiError("invalid", f"{name[:MAX_SHOWN]}: given more than once")
            if isinstance(value, UploadFile):
                if name != "image":
                    raise ApiError("invalid", f"{name[:MAX_SHOWN]}: expected text, got a file")
                images.append(await value.read())
            elif name == "image":
                raise ApiError("invalid", "image: expected a file, got text")
            else:
                texts[name] = value
    except MultiPartException:
        raise ApiError("bad_request") from None
    finally:  # a part without an end is not in the form, and its file would stay open
        for file in parser._files_to_close_on_error:  # pyright: ignore[reportPrivateUsage]
            file.close()
    for name, text in texts.items():
        field = model.model_fields.get(name)
        if field is not None and field.annotation is bool and text not in ("true", "false"):
            raise ApiError("invalid", f"{name}: expected true or false")  # pydantic also takes yes, on and 1
    return Form(_validate(model.model_validate_strings, texts), images)


def read_json(body: bytes, model: type[Fields], max_images: int = 1) -> Fields:
    """Parse a JSON body."""
    # Each part of a wrong body becomes an object, or an error of its own: millions would fill the memory.
    if sum(map(body.count, (b",", b":", b"[", b"{"))) > MAX_JSON_PARTS + PARTS_PER_IMAGE * max_images:
        raise ApiError("bad_request")
    return _validate(model.model_validate_json, body)


def _validate(validate: Callable[[Unvalidated], Fields], value: Unvalidated) -> Fields:
    """Return the validated fields; report the first problem without repeating the client's value."""
    try:
        return validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        location = ".".join(str(part)[:MAX_SHOWN] for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        name = "bad_request" if first["type"] == "json_invalid" else "invalid"
        raise ApiError(name, f"{location}: {message}" if location else message) from None


def decode_image(text: str) -> bytes:
    """Decode the image of a JSON body: base64, or a data: URL of base64; nothing is ever fetched."""
    scheme, colon, rest = text[:MAX_DATA_HEADER].partition(":")
    if not colon:
        return _decode_base64(text, "image: expected base64, or a data: URL")
    if scheme.lower() != "data":
        raise ApiError(
            "invalid",
            "image: expected base64, or a data: URL; other URLs are not fetched: send the image itself",
        )
    media_type, comma, _ = rest.partition(",")
    if not comma or not media_type.lower().endswith(";base64"):
        raise ApiError("invalid", "image: expected a URL like data:image/png;base64,... with base64 data")
    return _decode_base64(text.partition(",")[2], "image: expected base64 after the comma of the data: URL")


def _decode_base64(text: str, problem: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError("invalid", problem) from None
