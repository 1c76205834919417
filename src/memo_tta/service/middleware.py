"""ASGI middleware: security headers, the bearer token, and limits on request bodies."""

import asyncio
import hmac
import logging
from contextlib import suppress
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memo_tta.service.api_errors import ApiError
from memo_tta.service.metrics import Metrics
from memo_tta.service.settings import Settings

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PUBLIC_PATHS = ("/", "/healthz", "/readyz", "/openapi.json")  # no token needed; nor below /static/
MAX_UPLOADS = 64  # bodies that may arrive at the same time: each can take max_body bytes of memory
DRAIN_SECONDS = 2.0  # how long the body of a rejected request is read and discarded

log = logging.getLogger("memo_tta.service")


class ResponseGuard:
    """The outermost middleware: adds security headers, counts responses, hides internal errors."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                self._metrics.count_response(scope["path"], message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
            return
        except asyncio.CancelledError:  # a second signal skips the graceful shutdown
            error = ApiError("stopping")
        except Exception:
            log.exception("internal error while handling %s", scope["path"])
            error = ApiError("internal")
        if not has_started:
            await error.response(Headers(scope=scope))(scope, receive, send_with_headers)


class RequestLimits:
    """Passes on requests that have a valid token and a complete body within the limits."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics):
        self._app, self._settings, self._metrics = app, settings, metrics
        self._n_uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, has_body = Headers(scope=scope), scope["method"] not in ("GET", "HEAD")
        try:
            self._check_token(scope["path"], headers)
            body = await self._read_body(headers, receive) if has_body else b""
        except ApiError as error:
            await _reject(error, headers, receive, send)
            return
        if body is not None:
            await self._app(scope, _replay(body, receive), send)

    def _check_token(self, path: str, headers: Headers) -> None:
        token = self._settings.token
        if token is None or path in PUBLIC_PATHS or path.startswith("/static/"):
            return
        authorization = headers.get("authorization", "")
        if not hmac.compare_digest(authorization.encode("latin-1"), f"Bearer {token}".encode()):
            raise ApiError("unauthorized", headers={"WWW-Authenticate": "Bearer"})

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes | None:
        """Return the complete body, or None if the client disconnected."""
        limit, length = self._settings.max_body, headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > limit):
            raise _too_large(limit)
        if self._n_uploads >= MAX_UPLOADS:
            raise ApiError("busy", headers={"Retry-After": "1"})
        self._n_uploads += 1
        started = perf_counter()
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                return await _receive_body(receive, limit)
        except TimeoutError:
            raise ApiError("slow_body") from None
        finally:
            self._n_uploads -= 1
            self._metrics.observe_stage("read", perf_counter() - started)


async def _receive_body(receive: Receive, limit: int) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


async def _reject(error: ApiError, headers: Headers, receive: Receive, send: Send) -> None:
    """Respond at once, but close later: closing while the body arrives would discard the response."""
    error.headers["Connection"] = "close"
    response = error.response(headers)
    start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    if "expect" not in headers:  # a client that expects 100-continue sends its body only after that
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await _discard_body(receive)
    await send({"type": "http.response.body", "body": b""})


async def _discard_body(receive: Receive) -> None:
    while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
        pass


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first gives the body in one piece, then the server's further messages."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_replayed() -> Message:
        return messages.pop() if messages else await receive()

    return receive_replayed


def _too_large(limit: int) -> ApiError:
    return ApiError(
        "too_large", f"The body has more than the {limit / 2**20:g} MiB allowed: send a smaller image."
    )
