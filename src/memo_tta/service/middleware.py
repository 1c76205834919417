"""What stands before the application: headers on every answer, the token, and bodies within bounds."""

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

SECURITY = {
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
OPEN = ("/", "/healthz", "/readyz", "/openapi.json")  # what needs no token, beside /static/
MAX_UPLOADS = 64  # bodies that may be arriving at a time: each can take max_body of memory
log = logging.getLogger("memo_tta.service")

LINGER = 2.0  # seconds for which a refused body is read and thrown away, so that its sender hears why


class ResponseGuard:
    """Outermost: security headers, a count of every answer, and one where the service made a mistake."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        started = False

        async def counted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._metrics.count_request(scope["path"], message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            await self._app(scope, receive, counted)
            return
        except asyncio.CancelledError:  # a server that was told twice to end waits no longer
            refused = ApiError("stopping")
        except Exception:
            log.exception("a mistake of the service, at %s", scope["path"])
            refused = ApiError("internal")
        if not started:
            await refused.response(Headers(scope=scope))(scope, receive, counted)


class RequestLimits:
    """Hands on requests with a good token and a whole body; the rest never reach the application."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics):
        self._app, self._settings, self._metrics = app, settings, metrics
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, takes_body = Headers(scope=scope), scope["method"] not in ("GET", "HEAD")
        try:
            self._check_token(scope["path"], headers)
            body = await self._body(headers, receive) if takes_body else b""
        except ApiError as refused:
            await _refuse(refused, headers, receive, send)
            return
        if body is not None:
            await self._app(scope, _replay(body, receive), send)

    def _check_token(self, path: str, headers: Headers) -> None:
        token = self._settings.token
        if token is None or path in OPEN or path.startswith("/static/"):
            return
        given = headers.get("authorization", "")
        if not hmac.compare_digest(given.encode("latin-1"), f"Bearer {token}".encode()):
            raise ApiError("unauthorized", headers={"WWW-Authenticate": "Bearer"})

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """All of it; None if the client left."""
        limit, length = self._settings.max_body, headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > limit):
            raise _too_large(limit)
        if self._uploads >= MAX_UPLOADS:
            raise ApiError("busy", headers={"Retry-After": "1"})
        self._uploads += 1
        began = perf_counter()
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                return await _read(receive, limit)
        except TimeoutError:
            raise ApiError("slow_body") from None
        finally:
            self._uploads -= 1
            self._metrics.stage("read", perf_counter() - began)


async def _read(receive: Receive, limit: int) -> bytes | None:
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


async def _refuse(refused: ApiError, headers: Headers, receive: Receive, send: Send) -> None:
    """Answer at once and close later: closing while bytes come in would discard the answer."""
    refused.headers["Connection"] = "close"
    answer = refused.response(headers)
    await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    if "expect" not in headers:  # such a client sends its body only when it is told to
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await _discard(receive)
    await send({"type": "http.response.body", "body": b""})


async def _discard(receive: Receive) -> None:
    while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
        pass


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever comes: that the client left."""
    pieces: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pieces.pop() if pieces else await receive()

    return replayed


def _too_large(limit: int) -> ApiError:
    message = f"The body has more than the {limit / 2**20:g} MiB that are allowed: make the image smaller."
    return ApiError("too_large", message)
