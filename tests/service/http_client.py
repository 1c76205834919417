"""Requests as bytes on a socket: as light as a client can be, and as rude as a test needs it."""

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

BOUNDARY = "a-part-ends-here"


class Reply(NamedTuple):
    """Status 0: the connection ended without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


NONE = Reply(0, {}, b"")


def request(
    path: str, body: bytes = b"", kind: str = "", method: str = "POST", headers: dict[str, str] | None = None
) -> bytes:
    """A whole request; the connection closes after it."""
    fields = {"Host": "test", "Connection": "close", "Content-Length": str(len(body)), **(headers or {})}
    if kind:
        fields["Content-Type"] = kind
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def multipart(image: bytes | None, **fields: object) -> tuple[bytes, str]:
    """A form's body and its content type."""
    parts = []
    if image is not None:
        parts.append(b'name="image"; filename="image.png"\r\nContent-Type: image/png\r\n\r\n' + image)
    parts += [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; ".encode()
    body = b"".join(head + part + b"\r\n" for part in parts) + f"--{BOUNDARY}--\r\n".encode()
    return body, f"multipart/form-data; boundary={BOUNDARY}"


def predict_request(image: bytes, **fields: object) -> bytes:
    return request("/v1/predict", *multipart(image, **fields))


async def exchange(url: str, *pieces: bytes, pause: float = 0.0, leave: bool = False) -> Reply:
    """Send the pieces, with a pause after each; then read the answer, or leave without it."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for piece in pieces:
            try:
                writer.write(piece)
                await writer.drain()
            except ConnectionError:
                break  # it may have answered before it closed
            if pause:
                await asyncio.sleep(pause)
        return NONE if leave else await _answer(reader)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> Reply:
    """Up to the length that it names: a server may close later."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        length = headers.get("content-length")
        body = await (reader.read() if length is None else reader.readexactly(int(length)))
    except (ConnectionError, asyncio.IncompleteReadError):
        return NONE
    return Reply(int(first.split()[1]), headers, body)
