"""Requests that must be refused: damaged, too large, of the wrong type, too slow, or left alone."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tests.service.http_client import multipart, predict_request, request

PATH = "/v1/predict"
JSON = "application/json"


@dataclass(frozen=True)
class Bad:
    """What is sent, and how."""

    kind: str
    pieces: tuple[bytes, ...]
    pause: float = 0.0
    leave: bool = False


def bad_request(seed: int, max_body: int, body_seconds: float) -> Bad:
    """One of all kinds in turn, made from the seed; the limits are those of the service."""
    rng = np.random.default_rng(seed)
    kind, make = list(KINDS.items())[seed % len(KINDS)]
    made = make(rng, max_body, body_seconds)
    return Bad(kind, (made,)) if isinstance(made, bytes) else Bad(kind, *made)


def picture(rng: np.random.Generator, kind: str = "PNG", side: int = 8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(file, kind)
    return file.getvalue()


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def bomb(width: int, height: int) -> bytes:
    """A small PNG file that says it is large."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(2**20))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


Maker = Callable[[np.random.Generator, int, float], "bytes | tuple[tuple[bytes, ...], float, bool]"]


def _truncated(rng: np.random.Generator, *_: float) -> bytes:
    data = picture(rng, str(rng.choice(["PNG", "JPEG", "BMP", "GIF"])), 32)
    return predict_request(data[: int(rng.integers(1, len(data) // 2))])


def _noise(rng: np.random.Generator, *_: float) -> bytes:
    return predict_request(rng.bytes(int(rng.integers(0, 4000))))


def _disguised(rng: np.random.Generator, *_: float) -> bytes:
    texts = (
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7 ",
        b"GIF8",
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        b"II*\0",
    )
    return predict_request(texts[int(rng.integers(len(texts)))] + rng.bytes(40))


def _bomb(rng: np.random.Generator, *_: float) -> bytes:
    return predict_request(bomb(*rng.integers(10_000, 2**31 - 1, 2).tolist()))


def _half_bomb(rng: np.random.Generator, *_: float) -> bytes:
    return predict_request(bomb(4000, int(rng.integers(2000, 4000))))


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


def _option(rng: np.random.Generator, *_: float) -> bytes:
    name = str(rng.choice(list(OPTIONS)))
    return predict_request(picture(rng), **{name: OPTIONS[name][int(rng.integers(len(OPTIONS[name])))]})


def _wrong_json(rng: np.random.Generator, *_: float) -> bytes:
    image = base64.b64encode(picture(rng)).decode()
    bodies = [
        {"image": image, "n_views": "8"},
        {"image": image, "explain": 1},
        {"image": image, "lr": None, "seed": "0"},
        {"image": 5},
        {"image": None},
        {"image": "not base64!"},
        {"n_views": 4},
        [image],
        "text",
        {"image": [image]},
        {"image": image, "extra": {}},
    ]
    return request(PATH, json.dumps(bodies[int(rng.integers(len(bodies)))]).encode(), JSON)


def _broken_json(rng: np.random.Generator, *_: float) -> bytes:
    bodies = [b"", b"{", b'{"image": "', b"[" * 20_000, b'{"image": NaN}', b"\xff\xfe", rng.bytes(50)]
    return request(PATH, bodies[int(rng.integers(len(bodies)))], JSON)


def _broken_form(rng: np.random.Generator, *_: float) -> bytes:
    """Whole requests with bytes of the form cut out, doubled or changed, so that no image is left whole."""
    body, kind = multipart(rng.bytes(300), n_views=4)
    start, end = sorted(rng.integers(0, len(body), 2).tolist())
    changed = (
        body[:start] + body[end:],
        body[:end] + body[start:],
        body[:start] + rng.bytes(40) + body[end:],
    )
    return request(PATH, changed[int(rng.integers(len(changed)))], kind)


def _many_parts(rng: np.random.Generator, *_: float) -> bytes:
    body, kind = multipart(picture(rng), **{f"field{index}": index for index in range(200)})
    return request(PATH, body, kind)


def _wrong_type(rng: np.random.Generator, *_: float) -> bytes:
    kinds = (
        "",
        "text/plain",
        "image/png",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "application/xml",
    )
    return request(PATH, picture(rng), kinds[int(rng.integers(len(kinds)))])


def _wrong_address(rng: np.random.Generator, *_: float) -> bytes:
    places = (
        ("GET", PATH),
        ("PUT", PATH),
        ("POST", "/v1/model"),
        ("DELETE", "/"),
        ("GET", "/static/../app.py"),
    )
    method, path = (*places, ("GET", "/%2e%2e/etc/passwd"))[int(rng.integers(len(places) + 1))]
    return request(path, method=method)


def _too_large(rng: np.random.Generator, max_body: int, _seconds: float) -> bytes:
    return predict_request(picture(rng) + bytes(max_body))


def _too_large_in_chunks(
    rng: np.random.Generator, max_body: int, _seconds: float
) -> tuple[tuple[bytes, ...], float, bool]:
    head = request(PATH, kind=JSON, headers={"Transfer-Encoding": "chunked"}).replace(
        b"Content-Length: 0\r\n", b""
    )
    piece = b"%x\r\n" % 2**16 + bytes(2**16) + b"\r\n"
    return (head, *[piece] * (max_body // 2**16 + 2)), 0.0, False


def _slow(rng: np.random.Generator, _limit: int, seconds: float) -> tuple[tuple[bytes, ...], float, bool]:
    whole = predict_request(picture(rng))
    step = len(whole) // 8
    return (
        tuple(whole[start : start + step] for start in range(0, len(whole) - step, step)),
        seconds / 3,
        False,
    )


def _left(rng: np.random.Generator, *_: float) -> tuple[tuple[bytes, ...], float, bool]:
    """A client that leaves in the middle of its request, or before its answer."""
    whole = predict_request(picture(rng), n_views=64)
    return (whole[: int(rng.integers(1, len(whole) + 1))],), 0.01, True


KINDS: dict[str, Maker] = {
    "truncated image": _truncated,
    "noise": _noise,
    "disguised file": _disguised,
    "bomb": _bomb,
    "allowed bomb": _half_bomb,
    "option out of range": _option,
    "wrong JSON": _wrong_json,
    "broken JSON": _broken_json,
    "broken form": _broken_form,
    "many parts": _many_parts,
    "wrong content type": _wrong_type,
    "wrong address": _wrong_address,
    "too large": _too_large,
    "too large, chunked": _too_large_in_chunks,
    "slow": _slow,
    "client that leaves": _left,
}
