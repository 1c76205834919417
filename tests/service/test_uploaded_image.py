"""Images that clients send: decoded within a deadline and a budget of memory, and freed when refused."""

import gc
import io
from collections.abc import Callable
from time import perf_counter

import numpy as np
import pytest
from PIL import Image

from memo_tta.errors import InputError
from memo_tta.image import read_image
from memo_tta.service.api_errors import ApiError
from memo_tta.service.memory import MemoryBudget
from memo_tta.service.replica import DECODING_BYTES, PredictionRequest
from memo_tta.service.uploaded_image import DETAIL, PixelLimits, UploadedImage
from tests.service.bad_requests import scan_bomb, transparent_bomb
from tests.service.live import build_replica, build_served_model, image_file, wait_until

LIMITS = PixelLimits(most=25_000_000, side=32)


def smooth_image(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, file_format: str) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format)
    return file.getvalue()


def never() -> None:
    """Do not stop the decoding."""


def stops_at(call: int) -> Callable[[], None]:
    """Return a check that raises from this call on."""
    calls = iter(range(call))

    def check() -> None:
        if next(calls, None) is None:
            raise TimeoutError

    return check


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP"])
def test_an_image_is_reduced_to_what_the_model_needs(file_format):
    image = smooth_image(1100, 700)
    pixels = UploadedImage(encoded(image, file_format), LIMITS).decode(never)
    assert DETAIL * LIMITS.side <= min(pixels.shape[:2]) < 2 * DETAIL * LIMITS.side
    size = pixels.shape[1], pixels.shape[0]
    expected = np.asarray(image.resize(size, Image.Resampling.BOX), np.int16)
    assert np.abs(pixels - expected).mean() < 3


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_an_image_that_is_not_much_larger_is_decoded_as_it_is(file_format):
    data = encoded(smooth_image(301, 255), file_format)
    with Image.open(io.BytesIO(data)) as image:
        expected = read_image(image)
    np.testing.assert_array_equal(UploadedImage(data, LIMITS).decode(never), expected)


@pytest.mark.parametrize(
    "size", [(30_000_000, 1), (1, 30_000_000), (5001, 5000), (24_999_999, 1), (9, 250_000)]
)
def test_images_too_large_or_too_narrow_are_refused(size):
    with pytest.raises(ApiError) as refused:
        LIMITS.check(*size)
    assert refused.value.name == "too_many_pixels"
    LIMITS.check(5000, 5000)
    LIMITS.check(10, 200_000)


@pytest.mark.parametrize("make", [lambda: transparent_bomb(3000, 3000), lambda: scan_bomb(500)])
def test_decoding_stops_in_the_middle(make):
    counted = []
    data = make()
    UploadedImage(data, LIMITS).decode(lambda: counted.append(0))
    assert len(counted) > 4
    with pytest.raises(TimeoutError):
        UploadedImage(data, LIMITS).decode(stops_at(len(counted) // 2))


def test_past_the_deadline_a_large_image_is_not_decoded(server):
    reply = server.predict(transparent_bomb(4990, 4990), deadline_ms=1)
    assert (reply.status, reply.json["error"]) == (503, "expired") and reply.headers["retry-after"]
    small = server.predict(image_file(), deadline_ms=1)
    assert small.status == 200 and small.json["status"] == "deadline"


def test_a_damaged_image_is_damaged_and_one_without_memory_is_not(monkeypatch):
    data = image_file(size=40)
    with pytest.raises(InputError, match="truncated or damaged"):
        UploadedImage(data[:-300], LIMITS).decode(never)

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
    with pytest.raises(MemoryError):
        UploadedImage(data, LIMITS).decode(never)


def test_refused_images_are_freed_at_once(server):
    """Without the garbage collector: a cycle of an exception and its frames would keep the pixels."""
    truncated = transparent_bomb(600, 600)[:900]
    others = [b"GIF89a" + bytes(30), b"\x89PNG\r\n\x1a\n" + bytes(50), b"text", image_file()[:40]]

    def images() -> int:
        return sum(issubclass(type(found), Image.Image | UploadedImage) for found in gc.get_objects())

    server.predict(truncated)
    gc.collect()
    before = images()
    gc.disable()
    try:
        for data in [truncated, *others] * 4:
            assert 400 <= server.predict(data).status < 500
        wait_until(lambda: images() <= before)
    finally:
        gc.enable()


def test_replicas_wait_for_memory_before_they_decode():
    replica = build_replica(build_served_model())
    image = UploadedImage(encoded(smooth_image(1200, 1000), "PNG"), LIMITS)
    request = PredictionRequest(image=image, method="source", deadline=perf_counter() + 0.3)
    with replica._decoding.hold(DECODING_BYTES, never), pytest.raises(ApiError, match="before the image"):
        replica.predict(request)


def test_a_budget_makes_threads_wait_and_can_be_left():
    budget = MemoryBudget(100)
    with budget.hold(60, never):
        with pytest.raises(TimeoutError), budget.hold(60, stops_at(2)):
            pytest.fail("there were 40 left")
        with budget.hold(40, never):
            pass
    with budget.hold(10**9, never), pytest.raises(TimeoutError), budget.hold(1, stops_at(0)):
        pytest.fail("an image larger than the budget has all of it")
    with budget.hold(100, never):
        pass
