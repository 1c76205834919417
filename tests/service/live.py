"""A service on loopback, in a thread of the test's process."""

import asyncio
import io
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import uvicorn
from PIL import Image

from memo_tta.models.classifier import Classifier
from memo_tta.service.app import build_app
from memo_tta.service.deadline import AdaptationTimes, IsCancelled, never_cancelled
from memo_tta.service.handlers import Handlers
from memo_tta.service.memory import MemoryBudget
from memo_tta.service.model import ServedModel
from memo_tta.service.replica import DECODING_BYTES, Replica
from memo_tta.service.server import listen, uvicorn_config
from memo_tta.service.settings import Settings
from tests.nets import SIZE, build_classifier
from tests.service.http_client import Reply, exchange, predict_request

TIMEOUT = 240  # seconds until a test gives up; long, because the first start compiles


class LiveService:
    """A running service, and a client for it."""

    def __init__(self, url: str, handlers: Handlers):
        self.url, self.handlers = url, handlers

    def send(self, *pieces: bytes, pause: float = 0.0, disconnects: bool = False) -> Reply:
        """Send the pieces of a request and return the reply."""
        reply = exchange(self.url, *pieces, pause=pause, disconnects=disconnects)
        return asyncio.run(asyncio.wait_for(reply, TIMEOUT))

    def predict(self, image: bytes, **fields: object) -> Reply:
        """Request a prediction of an image file and return the reply."""
        return self.send(predict_request(image, **fields))

    def connect_and_send(self, piece: bytes) -> socket.socket:
        """Return a connection on which the piece was sent; closing it disconnects the client."""
        address = urlsplit(self.url)
        assert address.hostname and address.port
        client = socket.create_connection((address.hostname, address.port))
        client.sendall(piece)
        return client

    def wait_until_idle(self) -> None:
        """Wait until no request is queued or running."""
        pool = self.handlers.pool
        wait_until(lambda: pool.queue_depth == 0 and pool.n_busy == 0)


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll a condition until it holds."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.01)


def build_served_model(classifier: Classifier | None = None, **settings: Any) -> ServedModel:
    """Build a small model with two replicas and a deadline that suits a busy machine."""
    defaults: dict[str, Any] = {
        "replicas": 2,
        "deadline_ms": 60_000,
        "options": {"memo": {"n_views": 4, "lr": 0.05}},
    }
    return ServedModel(classifier or build_classifier("group-norm"), Settings(**{**defaults, **settings}))


def build_replica(
    served_model: ServedModel,
    times: AdaptationTimes | None = None,
    is_cancelled: IsCancelled = never_cancelled,
) -> Replica:
    """Build a replica that shares nothing with others, unless times are given."""
    return Replica(served_model, times or AdaptationTimes(), MemoryBudget(DECODING_BYTES), is_cancelled)


@contextmanager
def live_service(served_model: ServedModel) -> Generator[LiveService]:
    """Run a service on a free port for the duration of the block."""
    with listen("127.0.0.1", 0) as listener:
        app = build_app(served_model)
        server, handlers = uvicorn.Server(uvicorn_config(served_model, app)), app.state.handlers
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: handlers.pool.is_ready)
            yield LiveService(f"http://127.0.0.1:{listener.getsockname()[1]}", handlers)
        finally:
            server.should_exit = True
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def image_file(seed: int = 0, size: int = SIZE, file_format: str = "PNG") -> bytes:
    """Return an image file of random pixels, `size` high and a little wider."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size + 2, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, file_format)
    return file.getvalue()
