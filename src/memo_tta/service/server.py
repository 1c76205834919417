"""The process that serves: a socket, and an end that finishes what was accepted."""

import math
import signal
import socket
import warnings

import uvicorn
from fastapi import FastAPI
from PIL import Image

from memo_tta.errors import ConfigError, ModelError
from memo_tta.service.app import build_app
from memo_tta.service.model import ServedModel
from memo_tta.workers.malloc import keep_freed_memory

BACKLOG = 512
MAX_CONNECTIONS = 1000
GRACE = 10  # seconds beyond all deadlines


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port in use is known before a model warms up."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{host}:{port}: cannot listen there ({reason}): choose another --host or --port"
        ) from None


def configuration(served: ServedModel, app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=math.ceil(served.settings.deadline_ms / 1000) + GRACE,
    )


def run(served: ServedModel, listener: socket.socket) -> None:
    """Serve until SIGTERM, which ends the process in order, or Ctrl-C, which raises KeyboardInterrupt.

    It also ends, with what was accepted done, when a replica cannot be built: it would never be ready again.
    """
    keep_freed_memory()
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # such images are refused
    app = build_app(served)
    server, failures = uvicorn.Server(configuration(served, app)), list[Exception]()

    def end(*_: object) -> None:
        """Before uvicorn has its own handlers; and after them, when it raises the signal again."""
        server.should_exit = True

    def fail(error: Exception) -> None:
        failures.append(error)
        end()

    app.state.handlers.pool.on_failed = fail
    before = signal.signal(signal.SIGTERM, end)
    try:
        server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
    if failures:
        cause = " ".join(f"{type(failures[0]).__name__}: {failures[0]}".split())
        raise ModelError(
            f"{served.model}: a replica cannot be built ({cause}): can it predict an image of its size?"
        )
