"""Bad requests that the service must reject: damaged, too large, of the wrong type, slow or abandoned."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image

from tests.service.http_client import multipart, predict_request, request

PATH, BATCH_PATH = "/v1/predict", "/v1/predict:batch"
JSON = "application/json"


@dataclass(frozen=True)
class BadRequest:
    """The pieces of a request and how to send them: with pauses, or without waiting for the reply."""

    pieces: tuple[bytes, ...]
    pause: float = 0.0  # seconds after each piece
    disconnects: bool = False


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of the service that some of the requests exceed."""

    max_body: int  # bytes
    body_seconds: float


Maker = Callable[[np.random.Generator, ServiceLimits], bytes | BadRequest]


def bad_request(seed: int, limits: ServiceLimits) -> tuple[str, BadRequest]:
    """Return a kind and a random request of that kind; successive seeds cycle through all kinds."""
    kind, make = list(KINDS.items())[seed % len(KINDS)]
    made = make(np.random.default_rng(seed), limits)
    return kind, made if isinstance(made, BadRequest) else BadRequest((made,))


def noise_image(rng: np.random.Generator, file_format: str = "PNG", side: int = 8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(file, file_format)
    return file.getvalue()


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def decompression_bomb(width: int, height: int) -> bytes:
    """Return a small PNG file whose header claims a large image."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(2**20))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def transparent_bomb(width: int, height: int) -> bytes:
    """Return a small PNG file of one transparent colour, which takes four bytes per pixel to decode."""
    file = io.BytesIO()
    Image.new("RGBA", (width, height), (1, 2, 3, 4)).save(file, "PNG")
    return file.getvalue()


def scan_bomb(scans: int) -> bytes:
    """Return a small progressive JPEG file with this many scans, each of which visits the whole image."""
    file = io.BytesIO()
    Image.new("RGB", (2000, 2000), (90, 120, 150)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    starts = [start for start in range(len(data) - 1) if data[start : start + 2] == b"\xff\xda"]
    last = data[starts[-1] : -2]  # up to the end-of-image marker
    return data[:-2] + scans * last + data[-2:]


def _truncated(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    data = noise_image(rng, str(rng.choice(["PNG", "JPEG", "BMP", "GIF"])), 32)
    return predict_request(data[: int(rng.integers(1, len(data) // 2))])


def _random_bytes(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    return predict_request(rng.bytes(int(rng.integers(0, 4000))))


def _disguised(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    texts = (
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7 ",
        b"GIF8",
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        b"II*\0",
    )
    return predict_request(texts[int(rng.integers(len(texts)))] + rng.bytes(40))


def _forbidden_bomb(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    return predict_request(decompression_bomb(*rng.integers(10_000, 2**31 - 1, 2).tolist()))


def _allowed_bomb(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    return predict_request(decompression_bomb(4000, int(rng.integers(2000, 4000))))


OPTIONS = {
    "n_views": ["0", "-1", "1e3", "129", "nan", "99999999999999999999", "", "8.5"],
    "lr": ["0", "-1", "inf", "nan", "2", "x"],
    "seed": ["-1", "1.5", str(2**64), "x"],
    "top_k": ["0", "1001", "all"],
    "deadline_ms": ["0", "-5", "1e9", "99999999"],
    "explain": ["maybe", "2", ""],
    "method": ["tent", "nothing", "", "../../etc/passwd", "memo\0"],
    "unknown": ["1"],
}


def _option_out_of_range(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    name = str(rng.choice(list(OPTIONS)))
    return predict_request(noise_image(rng), **{name: OPTIONS[name][int(rng.integers(len(OPTIONS[name])))]})


def _wrong_json(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    image = base64.b64encode(noise_image(rng)).decode()
    bodies = [
        {"image": image, "n_views": "8"},
        {"image": image, "explain": 1},
        {"image": image, "lr": None, "seed": "0"},
        {"image": 5},
        {"image": None},
        {"image": "not base64!"},
        {"image": "http://127.0.0.1/metrics"},
        {"image": "data:image/png;base64,%%%"},
        {"n_views": 4},
        [image],
        "text",
        {"image": [image]},
        {"image": image, "extra": {}},
    ]
    return request(PATH, json.dumps(bodies[int(rng.integers(len(bodies)))]).encode(), JSON)


def _wrong_batch(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    image = base64.b64encode(noise_image(rng)).decode()
    bodies = [
        {"images": []},
        {"images": [image] * 17},
        {"images": [image, None]},
        {"images": image},
        {"images": [image], "image": image},
        {"images": [image], "n_views": 0},
        {"image": image},
        [image],
    ]
    return request(BATCH_PATH, json.dumps(bodies[int(rng.integers(len(bodies)))]).encode(), JSON)


def _broken_json(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    bodies = [b"", b"{", b'{"image": "', b"[" * 20_000, b'{"image": NaN}', b"\xff\xfe", rng.bytes(50)]
    return request(str(rng.choice([PATH, BATCH_PATH])), bodies[int(rng.integers(len(bodies)))], JSON)


def _broken_form(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    """Cut out, repeat or replace bytes of a form whose image is invalid anyway."""
    body, content_type = multipart(rng.bytes(300), n_views=4)
    start, end = sorted(rng.integers(0, len(body), 2).tolist())
    changed = (
        body[:start] + body[end:],
        body[:end] + body[start:],
        body[:start] + rng.bytes(40) + body[end:],
    )
    return request(PATH, changed[int(rng.integers(len(changed)))], content_type)


def _many_parts(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    body, content_type = multipart(noise_image(rng), **{f"field{index}": index for index in range(200)})
    return request(PATH, body, content_type)


def _wrong_content_type(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    content_types = (
        "",
        "text/plain",
        "image/png",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "application/xml",
    )
    return request(PATH, noise_image(rng), content_types[int(rng.integers(len(content_types)))])


def _wrong_address(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    operations = (
        ("GET", PATH),
        ("PUT", PATH),
        ("POST", "/v1/model"),
        ("DELETE", "/"),
        ("GET", "/static/../app.py"),
        ("GET", "/%2e%2e/etc/passwd"),
    )
    method, path = operations[int(rng.integers(len(operations)))]
    return request(path, method=method)


def _too_large(rng: np.random.Generator, limits: ServiceLimits) -> bytes:
    return predict_request(noise_image(rng) + bytes(limits.max_body))


def _too_large_in_chunks(_rng: np.random.Generator, limits: ServiceLimits) -> BadRequest:
    head = request(PATH, content_type=JSON, headers={"Transfer-Encoding": "chunked"}).replace(
        b"Content-Length: 0\r\n", b""
    )
    chunk = b"%x\r\n" % 2**16 + bytes(2**16) + b"\r\n"
    return BadRequest((head, *[chunk] * (limits.max_body // 2**16 + 2)))


def _slow(rng: np.random.Generator, limits: ServiceLimits) -> BadRequest:
    """Send all but the end of a request, too slowly."""
    whole = predict_request(noise_image(rng))
    step = len(whole) // 8
    pieces = tuple(whole[start : start + step] for start in range(0, len(whole) - step, step))
    return BadRequest(pieces, pause=limits.body_seconds / 3)


def _disconnecting(rng: np.random.Generator, _limits: ServiceLimits) -> BadRequest:
    """Disconnect in the middle of the request, or before the reply."""
    whole = predict_request(noise_image(rng), n_views=64)
    return BadRequest((whole[: int(rng.integers(1, len(whole) + 1))],), pause=0.01, disconnects=True)


@cache
def _large_transparent_image() -> bytes:
    return transparent_bomb(4990, 4990)  # just below the default limit: 100 MB of pixels in 100 KB


def _truncated_large_image(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    data = _large_transparent_image()
    return predict_request(data[: int(len(data) * rng.uniform(0.1, 0.5))])


def _narrow(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    sides = [1, int(rng.integers(10**6, 24_999_999))]
    return predict_request(decompression_bomb(*rng.permutation(sides).tolist()))


def _many_json_parts(rng: np.random.Generator, limits: ServiceLimits) -> bytes:
    part = (b"0,", b"[", b'"a":0,', b'{"a":')[int(rng.integers(4))]
    return request(PATH, b'{"image": [' + part * (limits.max_body // 2 // len(part)), JSON)


def _other_site(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    headers = (
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    )
    body, content_type = multipart(noise_image(rng))
    return request(PATH, body, content_type, headers=headers[int(rng.integers(len(headers)))])


def _strange_path(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    paths = (
        "/static/%00",
        "/static/%2e%2e%2f%2e%2e%2fetc/passwd",
        "/%ff%fe",
        "//evil.example/%2e%2e",
        "/static",
        "/v1/model/",
        "/" + "a" * 9000,
        "/static/" + "b/" * 3000,
        "*",
    )
    return request(paths[int(rng.integers(len(paths)))], method="GET")


def _not_http(rng: np.random.Generator, _limits: ServiceLimits) -> bytes:
    host = b"Host: localhost\r\n"
    messages = (
        b"\x16\x03\x01\x02\x00\x01\x00" + rng.bytes(200) + b"\r\n\r\n",
        b"GET / HTTP/1\r\n" + host + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        b"GET / HTTP/1.1\r\n" + host * 2 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + host + b"X: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + host + b"X : y\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + host + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\n" + host + b"Content-Length: -5\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\n" + host + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST /v1/predict HTTP/1.1\r\n" + host + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n" + host + b"\r\n",
    )
    return messages[int(rng.integers(len(messages)))]


KINDS: dict[str, Maker] = {
    "truncated image": _truncated,
    "truncated large image": _truncated_large_image,
    "narrow image": _narrow,
    "JSON of many parts": _many_json_parts,
    "other site": _other_site,
    "strange path": _strange_path,
    "not HTTP": _not_http,
    "random bytes": _random_bytes,
    "disguised file": _disguised,
    "decompression bomb": _forbidden_bomb,
    "decompression bomb below the pixel limit": _allowed_bomb,
    "option out of range": _option_out_of_range,
    "wrong JSON": _wrong_json,
    "wrong batch": _wrong_batch,
    "broken JSON": _broken_json,
    "broken form": _broken_form,
    "many parts": _many_parts,
    "wrong content type": _wrong_content_type,
    "wrong address": _wrong_address,
    "too large": _too_large,
    "too large, chunked": _too_large_in_chunks,
    "slow": _slow,
    "disconnecting client": _disconnecting,
}
