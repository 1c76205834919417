"""ASGI middleware: security headers around all responses, access rules and limits before all requests."""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memo_tta.service.access import READ_ONLY, AccessRules
from memo_tta.service.api_errors import ApiError
from memo_tta.service.metrics import Metrics
from memo_tta.service.request_body import Bodies
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
DRAIN_SECONDS = 2.0  # how long the body of a rejected request is read and discarded


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
        except Exception as problem:
            error = ApiError.from_unexpected(problem)
        if not has_started:
            await error.response(Headers(scope=scope))(scope, receive, send_with_headers)


class RequestLimits:
    """Passes on requests that keep the access rules and have a complete body within the limits."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics):
        self._app, self._rules, self._bodies = app, AccessRules(settings), Bodies(settings, metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, peer = Headers(scope=scope), (scope["client"] or ("",))[0]
        try:
            self._rules.check(scope["method"], scope["path"], headers)
            if scope["method"] in READ_ONLY:
                await self._app(scope, _replay(b"", receive), send)
                return
            async with self._bodies.read(headers, peer, receive) as body:
                if body is not None:
                    await self._app(scope, _replay(body, receive), send)
        except ApiError as error:
            await _reject(error, headers, receive, send)


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
