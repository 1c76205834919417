"""Bodies of many clients at once: slow ones make room, and together they have a limit."""

import asyncio

import pytest
from starlette.datastructures import Headers

from memo_tta.service import request_body
from memo_tta.service.api_errors import ApiError
from memo_tta.service.metrics import Metrics
from memo_tta.service.request_body import Bodies
from memo_tta.service.settings import Settings
from tests.service.http_client import predict_request
from tests.service.live import image_file

LIMIT = 100


class Client:
    """Sends one body in pieces, each when it is told to."""

    def __init__(self, bodies: Bodies, peer: str = "a"):
        self._pieces, self._bodies, self.peer = asyncio.Queue(), bodies, peer
        self.is_done = asyncio.Event()  # with the response, for which the body is kept
        self.task = asyncio.create_task(self._upload())

    async def _upload(self) -> str:
        try:
            async with self._bodies.read(Headers(), self.peer, self._pieces.get) as body:
                assert body is not None
                await self.is_done.wait()
                return f"{len(body)} bytes"
        except ApiError as error:
            return error.name

    async def send(self, size: int, is_last: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": bytes(size), "more_body": not is_last})
        await asyncio.sleep(0.01)

    async def finish(self) -> str:
        self.is_done.set()
        return await self.task


@pytest.fixture
def bodies(monkeypatch):
    """Bodies of at most 100 bytes each, and 300 together."""
    monkeypatch.setattr(request_body, "BODIES", 1)
    return Bodies(Settings(max_body=LIMIT, replicas=1), Metrics())


def test_the_slowest_makes_room_where_too_many_arrive(bodies, monkeypatch):
    monkeypatch.setattr(request_body, "MAX_UPLOADS", 2)

    async def arrive() -> None:
        slow, other = Client(bodies), Client(bodies)
        await slow.send(1)
        await other.send(1)
        quick = Client(bodies)
        await quick.send(5, is_last=True)
        assert await slow.task == "slow_body"
        await other.send(1, is_last=True)
        assert await quick.finish() == "5 bytes" and await other.finish() == "2 bytes"

    asyncio.run(arrive())


def test_the_peer_that_sends_most_makes_room_first(bodies, monkeypatch):
    monkeypatch.setattr(request_body, "MAX_UPLOADS", 3)

    async def arrive() -> None:
        alone, first, second = Client(bodies, "alone"), Client(bodies, "many"), Client(bodies, "many")
        for client in (alone, first, second):
            await client.send(1)
        await Client(bodies, "new").send(1)
        assert await first.task == "slow_body" and not alone.task.done() and not second.task.done()
        for client in (alone, second):
            client.task.cancel()

    asyncio.run(arrive())


def test_all_bodies_together_have_a_limit_until_their_requests_end(bodies):
    async def arrive() -> None:
        in_use = [Client(bodies) for _ in range(3)]
        for client in in_use:
            await client.send(LIMIT, is_last=True)
        late = Client(bodies)
        await late.send(LIMIT, is_last=True)
        assert await late.task == "busy"  # all that is there is in use: nothing can make room
        assert await in_use[0].finish() == "100 bytes"
        slow = Client(bodies)
        await slow.send(LIMIT - 1)
        newcomer = Client(bodies)
        await newcomer.send(LIMIT, is_last=True)
        assert await slow.task == "slow_body" and await newcomer.finish() == "100 bytes"
        assert [await client.finish() for client in in_use[1:]] == ["100 bytes"] * 2
        again = [Client(bodies) for _ in range(3)]  # everything was given back
        for client in again:
            await client.send(LIMIT, is_last=True)
        assert [await client.finish() for client in again] == ["100 bytes"] * 3

    asyncio.run(arrive())


def test_slow_bodies_keep_nobody_out(server, monkeypatch):
    monkeypatch.setattr(request_body, "MAX_UPLOADS", 1)
    with server.connect_and_send(predict_request(image_file())[:-40]) as slow:
        for _ in range(3):
            assert server.predict(image_file()).status == 200
        slow.settimeout(20)
        assert slow.recv(2**16).startswith(b"HTTP/1.1 408 ")
