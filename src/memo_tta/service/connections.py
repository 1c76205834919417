"""HTTP connections that slow or broken clients cannot keep: bounded in number and in time."""

import asyncio
import resource
from collections import defaultdict
from typing import Any, cast

import h11
from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle

from memo_tta.service.api_errors import ApiError
from memo_tta.service.middleware import SECURITY_HEADERS

MAX_CONNECTIONS = 4000
FILES_FOR_OTHERS = 200  # open files that are no connections
BACKLOG = 512  # connections that the kernel keeps until they are accepted
HEADER_SECONDS = 10.0  # for the headers of a request, from the connection or the last response
STALL_SECONDS = 10.0  # without progress while a response is sent


class Connections:
    """The open connections, and those of them that wait for the headers of a request.

    Where there are too many, or too many of one peer wait, the one that has waited longest is closed, of the
    peer with the most. So clients that send their headers at once are always served.
    """

    def __init__(self) -> None:
        self._most = _allowed_connections()
        self._n_open = 0
        self._waiting = defaultdict[str, dict[BoundedProtocol, None]](dict)  # by peer, longest first

    def opened(self, connection: "BoundedProtocol") -> None:
        self._n_open += 1
        self.waits(connection)
        busiest = max(self._waiting.values(), key=len)
        if self._n_open > self._most or len(busiest) > self._most // 2:
            longest = next(iter(busiest))
            self.works(longest)
            longest.give_up()

    def closed(self, connection: "BoundedProtocol") -> None:
        self._n_open -= 1
        self.works(connection)

    def waits(self, connection: "BoundedProtocol") -> None:
        self._waiting[connection.peer][connection] = None

    def works(self, connection: "BoundedProtocol") -> None:
        waiting = self._waiting.get(connection.peer, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.peer, None)


def _allowed_connections() -> int:
    """Raise this process's limit on open files, if it is low; return how many of them may be connections."""
    wanted = MAX_CONNECTIONS + FILES_FOR_OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - FILES_FOR_OTHERS)
    return MAX_CONNECTIONS


class BoundedProtocol(H11Protocol):
    """A connection that is closed if its client does not send headers, or does not read its response."""

    def __init__(self, connections: Connections, **uvicorn: Any):
        super().__init__(**uvicorn)
        self._connections, self.peer = connections, ""
        self._header_timer: asyncio.TimerHandle | None = None  # while it waits for the headers of a request
        self._stall_timer: asyncio.TimerHandle | None = None  # while its client does not read

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        self._connections.opened(self)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._header_timer)
        _cancel(self._stall_timer)
        self._connections.closed(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        was_waiting = self._is_waiting
        super().handle_events()
        if was_waiting and not self._is_waiting:
            _cancel(self._header_timer)
            self._connections.works(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_waiting:
            self._connections.waits(self)
            self._start_header_timer()

    @property
    def _is_waiting(self) -> bool:
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first request
        return cycle is None or cycle.response_complete

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._stall_timer)

    def give_up(self) -> None:
        """Tell the client that its headers have not come, and close the connection."""
        if self.transport.is_closing():  # the end of the last response has not been read either
            self.transport.abort()
        else:
            self._send_error(ApiError("slow_headers"))

    def send_400_response(self, msg: str) -> None:
        self._send_error(ApiError("bad_request", "This is not a valid HTTP request."))

    def _send_error(self, error: ApiError) -> None:
        """Send an error that no application has seen, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = error.response(Headers())
            headers = [*response.raw_headers, *_OWN_HEADERS]
            start = h11.Response(
                status_code=error.status, headers=headers, reason=STATUS_PHRASES[error.status]
            )
            for event in (start, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._start_header_timer()

    def _start_header_timer(self) -> None:
        _cancel(self._header_timer)
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self.give_up)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


_OWN_HEADERS = [
    (name.lower().encode(), value.encode())
    for name, value in {**SECURITY_HEADERS, "Cache-Control": "no-store", "Connection": "close"}.items()
]
