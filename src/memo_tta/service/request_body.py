"""Bodies of requests: bounded in bytes, in time, and in what all of them take together."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import perf_counter

from starlette.datastructures import Headers
from starlette.types import Receive

from memo_tta.service.api_errors import ApiError
from memo_tta.service.metrics import Metrics
from memo_tta.service.settings import Settings

MAX_UPLOADS = 1000  # bodies that arrive at the same time
BODIES, BODIES_PER_REPLICA = 8, 2  # of the largest size, that may be in memory at the same time


class Upload:
    """A body that is arriving, and the timeout that cuts it off."""

    def __init__(self, peer: str):
        self.peer, self.size = peer, 0
        self.timeout = asyncio.timeout(None)


class Bodies:
    """The bodies of all requests in hand.

    A body for which there is no room cuts off the one that has been arriving for longest, of the peer that
    sends most: slow clients replace each other, and nobody waits for them.
    """

    def __init__(self, settings: Settings, metrics: Metrics):
        self._max_body, self._seconds = settings.max_body, settings.body_seconds
        self._budget = (BODIES + BODIES_PER_REPLICA * settings.replicas) * settings.max_body
        self._metrics = metrics
        self._uploads: list[Upload] = []  # in the order in which they began
        self._size = 0  # bytes of all bodies

    @asynccontextmanager
    async def read(self, headers: Headers, peer: str, receive: Receive) -> AsyncGenerator[bytes | None]:
        """Yield the complete body, or None if the client disconnected; its bytes count until the end."""
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > self._max_body):
            raise self._too_large()
        upload = Upload(peer)
        try:
            yield await self._arrived(upload, receive)
        finally:
            self._size -= upload.size

    async def _arrived(self, upload: Upload, receive: Receive) -> bytes | None:
        started = perf_counter()
        self._uploads.append(upload)
        if len(self._uploads) > MAX_UPLOADS:
            self._cut_off_slowest(upload)
        try:
            async with asyncio.timeout(self._seconds) as upload.timeout:
                return await self._receive(upload, receive)
        except TimeoutError:
            raise ApiError("slow_body") from None
        finally:
            if upload in self._uploads:
                self._uploads.remove(upload)
            self._metrics.observe_stage("read", perf_counter() - started)

    async def _receive(self, upload: Upload, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece = message.get("body", b"")
            upload.size += len(piece)
            self._size += len(piece)
            if upload.size > self._max_body:
                raise self._too_large()
            if self._size > self._budget:
                self._cut_off_slowest(upload)
            body += piece
            if not message.get("more_body", False):
                return bytes(body)

    def _cut_off_slowest(self, newcomer: Upload) -> None:
        """Cut off another upload; raise if there is none, because all bodies are complete and in use."""
        others = [upload for upload in self._uploads if upload is not newcomer]
        if not others:
            raise ApiError("busy", headers={"Retry-After": "1"})
        ((busiest, _),) = Counter(upload.peer for upload in others).most_common(1)
        slowest = next(upload for upload in others if upload.peer == busiest)
        self._uploads.remove(slowest)
        slowest.timeout.reschedule(asyncio.get_running_loop().time())

    def _too_large(self) -> ApiError:
        return ApiError(
            "too_large",
            f"The body has more than the {self._max_body / 2**20:g} MiB allowed: send a smaller image.",
        )
