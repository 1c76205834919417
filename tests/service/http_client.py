"""A raw HTTP client that sends bytes on a socket, so that tests can send malformed or slow requests."""

import asyncio
import json
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

BOUNDARY = "a-part-ends-here"


class Reply(NamedTuple):
    """A response; its status is 0 if the connection ended without one."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


NO_REPLY = Reply(0, {}, b"")


def request(
    path: str,
    body: bytes = b"",
    content_type: str = "",
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> bytes:
    """Build a complete request, after which the connection closes."""
    fields = {"Host": "localhost", "Connection": "close", "Content-Length": str(len(body)), **(headers or {})}
    if content_type:
        fields["Content-Type"] = content_type
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def multipart(image: bytes | None, **fields: object) -> tuple[bytes, str]:
    """Build the body of a form; return it with its content type."""
    parts: list[bytes] = []
    if image is not None:
        parts.append(b'name="image"; filename="image.png"\r\nContent-Type: image/png\r\n\r\n' + image)
    parts += [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; ".encode()
    body = b"".join(head + part + b"\r\n" for part in parts) + f"--{BOUNDARY}--\r\n".encode()
    return body, f"multipart/form-data; boundary={BOUNDARY}"


def predict_request(image: bytes, **fields: object) -> bytes:
    """Build a request for a prediction, as a form."""
    return request("/v1/predict", *multipart(image, **fields))


async def exchange(url: str, *pieces: bytes, pause: float = 0.0, disconnects: bool = False) -> Reply:
    """Send the pieces with a pause of seconds after each; then read the reply, or disconnect without it."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for piece in pieces:
            try:
                writer.write(piece)
                await writer.drain()
            except ConnectionError:
                break  # the server may have replied before it closed
            if pause:
                await asyncio.sleep(pause)
        return NO_REPLY if disconnects else await _read_reply(reader)
    finally:
        # Not close(), which leaves the socket open until everything is sent, perhaps after the event loop.
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _read_reply(reader: asyncio.StreamReader) -> Reply:
    """Read a reply up to its Content-Length: the server may close the connection later."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        length = headers.get("content-length")
        body = await (reader.read() if length is None else reader.readexactly(int(length)))
    except (ConnectionError, asyncio.IncompleteReadError):
        return NO_REPLY
    return Reply(int(first.split()[1]), headers, body)
