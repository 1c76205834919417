"""Every way to be refused: its name, its status, and what it says to a program and on the page."""

from collections.abc import Mapping
from html import escape

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response

# Name → (status, when it happens). The OpenAPI document lists them all.
API_ERRORS = {
    "bad_request": (400, "The body is not what its content type says, or has too many parts."),
    "unauthorized": (401, "The bearer token is missing or wrong."),
    "not_found": (404, "There is nothing at this address."),
    "method_not_allowed": (405, "The address exists, but not for this HTTP method."),
    "slow_body": (408, "The body did not arrive in time."),
    "too_large": (413, "The body has more bytes than allowed."),
    "too_many_pixels": (413, "The image has more pixels than allowed; it was not decoded."),
    "unsupported_type": (415, "The body is neither multipart nor JSON, or the image is of no known format."),
    "invalid": (422, "A field is missing, unknown, of the wrong type or out of range."),
    "damaged_image": (422, "The image is truncated or damaged."),
    "internal": (500, "A mistake of the service, and in its log."),
    "busy": (503, "All replicas are busy and the queue is full; Retry-After says when to come back."),
    "starting": (503, "The model is warming up."),
    "stopping": (503, "The service finishes what it has accepted, and takes nothing new."),
}
RETRY_AFTER = "5"  # seconds, where nothing better is known
BY_STATUS = {status: name for name, (status, _) in reversed(API_ERRORS.items())}


class ApiError(Exception):
    """A request that gets no answer, and why."""

    def __init__(self, name: str, message: str | None = None, headers: Mapping[str, str] | None = None):
        self.name, (self.status, default) = name, API_ERRORS[name]
        self.message = default if message is None else message
        self.headers = {**({"Retry-After": RETRY_AFTER} if self.status == 503 else {}), **(headers or {})}
        super().__init__(self.message)

    @classmethod
    def of_status(cls, status: int, headers: Mapping[str, str] | None = None) -> "ApiError":
        """For what the framework refuses, in our words: its own may name versions."""
        return cls(BY_STATUS.get(status, "bad_request"), headers=headers)

    def response(self, asked: Headers) -> Response:
        """JSON; for the page's own requests, a piece of it."""
        if "hx-request" in asked:
            opening = f'<article class="refusal" role="alert" data-error="{self.name}">'
            return HTMLResponse(f"{opening}{escape(self.message)}</article>", self.status, self.headers)
        return JSONResponse({"error": self.name, "message": self.message}, self.status, self.headers)
