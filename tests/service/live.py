"""A service on loopback, in a thread of this process."""

import asyncio
import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from urllib.parse import urlsplit

import numpy as np
import uvicorn
from PIL import Image

from memo_tta.models.classifier import Classifier
from memo_tta.service.app import build_app
from memo_tta.service.handlers import Handlers
from memo_tta.service.model import ServedModel
from memo_tta.service.server import configuration, listen
from memo_tta.service.settings import Settings
from tests.nets import SIZE, build_classifier
from tests.service.http_client import Reply, exchange, predict_request

PATIENCE = 240  # seconds until a test gives up: a first start compiles; nothing is measured


class Live:
    def __init__(self, url: str, handlers: Handlers):
        self.url, self.handlers = url, handlers

    def send(self, *pieces: bytes, pause: float = 0.0, leave: bool = False) -> Reply:
        return asyncio.run(asyncio.wait_for(exchange(self.url, *pieces, pause=pause, leave=leave), PATIENCE))

    def predict(self, image: bytes, **fields: object) -> Reply:
        return self.send(predict_request(image, **fields))

    def begin(self, piece: bytes) -> socket.socket:
        """A connection on which this was sent; to close it is to leave."""
        address = urlsplit(self.url)
        client = socket.create_connection((address.hostname, address.port))
        client.sendall(piece)
        return client

    def wait_until_idle(self) -> None:
        until(lambda: self.handlers.pool.depth == 0 and self.handlers.pool.busy == 0)


def until(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def build_served(classifier: Classifier | None = None, **settings) -> ServedModel:
    """A small classifier, two replicas, and time enough for a busy machine."""
    chosen = {
        "replicas": 2,
        "deadline_ms": 60_000,
        "options": {"memo": {"n_views": 4, "lr": 0.05}},
        **settings,
    }
    return ServedModel(classifier or build_classifier("group-norm"), Settings(**chosen))


@contextmanager
def live(served: ServedModel) -> Iterator[Live]:
    with listen("127.0.0.1", 0) as listener:
        app = build_app(served)
        server, handlers = uvicorn.Server(configuration(served, app)), app.state.handlers
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: handlers.pool.is_ready)
            yield Live(f"http://127.0.0.1:{listener.getsockname()[1]}", handlers)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


def png(seed: int = 0, size: int = SIZE, kind: str = "PNG") -> bytes:
    """An image file of noise."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size + 2, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()
