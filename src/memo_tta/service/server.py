"""The server process: its socket, its signals and its graceful shutdown."""

import math
import os
import signal
import socket
import warnings
from functools import partial
from threading import Event, Thread
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from memo_tta.errors import ConfigError, ModelError
from memo_tta.service.app import build_app
from memo_tta.service.connections import BACKLOG, BoundedProtocol, Connections
from memo_tta.service.model import ServedModel
from memo_tta.workers.malloc import keep_freed_memory

GRACE_SECONDS = 10  # for the shutdown, beyond the longest deadline
STUCK_SECONDS = 10  # beyond the grace, after which a process that does not end is ended


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket before the model warms up, so that a port in use is reported at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{host}:{port}: cannot listen on this address ({reason}): choose another --host or --port"
        ) from None


def uvicorn_config(served_model: ServedModel, app: FastAPI) -> uvicorn.Config:
    """Return the configuration of uvicorn for this service."""
    return uvicorn.Config(
        app,
        http=cast(Any, partial(BoundedProtocol, Connections())),
        backlog=BACKLOG,
        log_level="error",  # each invalid request would be a warning
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=math.ceil(served_model.settings.deadline_ms / 1000) + GRACE_SECONDS,
    )


def run(served_model: ServedModel, listener: socket.socket) -> None:
    """Serve until SIGTERM, which shuts down gracefully, or Ctrl-C, which also raises KeyboardInterrupt.

    If a replica cannot be built, shut down gracefully and raise a ModelError: it would never be ready.
    """
    keep_freed_memory()
    warnings.filterwarnings("ignore", module=r"PIL\b")  # clients may send damaged images without end
    app = build_app(served_model)
    server, failures = uvicorn.Server(uvicorn_config(served_model, app)), list[Exception]()

    def stop(*_: object) -> None:
        """Handle SIGTERM before uvicorn installs its handler, and when uvicorn raises it again at the end."""
        server.should_exit = True

    def fail(error: Exception) -> None:
        failures.append(error)
        stop()

    app.state.handlers.pool.on_failed = fail
    previous_handler, ended = signal.signal(signal.SIGTERM, stop), Event()
    Thread(target=_exit_if_stuck, args=(server, ended), name="watchdog", daemon=True).start()
    try:
        server.run(sockets=[listener])
    finally:
        ended.set()
        signal.signal(signal.SIGTERM, previous_handler)
    if failures:
        cause = " ".join(f"{type(failures[0]).__name__}: {failures[0]}".split())
        raise ModelError(
            f"{served_model.name}: cannot build a replica ({cause}): "
            "check that the model can predict an image of its input size"
        )


def _exit_if_stuck(server: uvicorn.Server, ended: Event) -> None:
    """End the process if it has not ended some time after it was told to: the body of a thread."""
    while not server.should_exit:
        if ended.wait(1.0):
            return
    grace = server.config.timeout_graceful_shutdown or 0
    if not ended.wait(grace + STUCK_SECONDS):
        os._exit(1)
