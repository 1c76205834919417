"""Every error of the API: its name, its status and its message, as JSON or as a part of the page."""

import logging
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response

from memo_tta.errors import InputError
from memo_tta.service.memory import is_out_of_memory, recover_memory
from memo_tta.service.page.rendering import render

# Name → (status, when it happens). The OpenAPI document lists them all.
API_ERRORS = {
    "bad_request": (400, "The body does not match its content type, or has too many parts."),
    "unauthorized": (401, "The bearer token is missing or wrong."),
    "cross_site": (403, "A page of another site sent the request: only the service's own page may."),
    "not_found": (404, "There is nothing at this path."),
    "method_not_allowed": (405, "This path does not support the HTTP method."),
    "slow_headers": (408, "The headers did not arrive in time."),
    "slow_body": (408, "The body did not arrive in time, or made room for others."),
    "too_large": (413, "The body has more bytes than allowed."),
    "too_many_pixels": (413, "The image has more pixels than allowed, or is too narrow; it was not decoded."),
    "unsupported_type": (
        415,
        "The body is neither multipart nor JSON, or the format of the image is not supported.",
    ),
    "unknown_host": (
        421,
        "The Host header does not name this service: use its address, or start it with --allowed-host NAME.",
    ),
    "invalid": (422, "A field is missing, unknown, of the wrong type or out of range."),
    "damaged_image": (422, "The image is truncated or damaged."),
    "internal": (500, "An internal error; the service's log has the details."),
    "busy": (503, "All replicas are busy and the queue is full: retry after the seconds in Retry-After."),
    "expired": (
        503,
        "The deadline passed before the image was decoded: retry later, or send a smaller one.",
    ),
    "no_memory": (503, "There was not enough memory for this request: retry later, or send a smaller image."),
    "starting": (503, "The model is warming up."),
    "stopping": (503, "The service is shutting down: it finishes accepted requests and takes no new ones."),
}
RETRY_AFTER = "5"  # seconds, where no estimate exists
# The first error of each status: a status alone does not tell two errors apart.
NAME_BY_STATUS = {status: name for name, (status, _) in reversed(API_ERRORS.items())}

log = logging.getLogger("memo_tta.service")


class ApiError(Exception):
    """An error that the client gets as the response to its request."""

    def __init__(self, name: str, message: str | None = None, headers: Mapping[str, str] | None = None):
        self.name, (self.status, default_message) = name, API_ERRORS[name]
        self.message = default_message if message is None else message
        self.headers = {**({"Retry-After": RETRY_AFTER} if self.status == 503 else {}), **(headers or {})}
        super().__init__(self.message)

    @classmethod
    def from_status(cls, status: int, headers: Mapping[str, str] | None = None) -> "ApiError":
        """Replace an error of the framework, whose own message may reveal versions."""
        return cls(NAME_BY_STATUS.get(status, "bad_request"), headers=headers)

    @classmethod
    def from_exception(cls, error: Exception) -> "ApiError":
        """Return what the client is told of an exception, without its traceback, which holds the image."""
        if isinstance(error, ApiError):
            return cls(error.name, error.message, error.headers)
        if isinstance(error, InputError):
            return cls("damaged_image", str(error))
        return cls.from_unexpected(error)

    @classmethod
    def from_unexpected(cls, error: BaseException) -> "ApiError":
        """Log an exception that nothing expected, and return what the client is told of it."""
        if is_out_of_memory(error):
            log.error("not enough memory for a request (%s)", error)
            recover_memory()
            return cls("no_memory")
        log.error("internal error", exc_info=error)
        return cls("internal")

    def response(self, request_headers: Headers) -> Response:
        """Return JSON, or an HTML fragment if htmx on the page sent the request."""
        if "hx-request" in request_headers:
            html = render("error.html", name=self.name, message=self.message)
            return HTMLResponse(html, self.status, self.headers)
        return JSONResponse(self.content, self.status, self.headers)

    @property
    def content(self) -> dict[str, str]:
        """The fields of an ErrorResponse."""
        return {"error": self.name, "message": self.message}
