"""Many at once: the same answers as one after the other, and weights as they were."""

import asyncio
import os
import threading

import numpy as np
import pytest

from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.zoo import load
from tests.nets import build_classifier
from tests.service.http_client import exchange, predict_request
from tests.service.live import PATIENCE, Live, build_served, live, png

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
REQUESTS, AT_ONCE = (1000, 16) if SOAK else (60, 8)
PLACES = 64


def mixed(count: int, size: int) -> list[bytes]:
    """Requests of all kinds; some images come again with other options."""
    rng = np.random.default_rng(0)
    requests = []
    for _ in range(count):
        fields = {"seed": int(rng.integers(3)), "explain": str(bool(rng.random() < 0.2)).lower()}
        fields["method"] = str(rng.choice(["memo", "memo", "memo", "tta", "source", "memo-ce", "tent-bs1"]))
        if fields["method"] in ("memo", "memo-ce", "tta"):
            fields["n_views"] = int(rng.integers(1, 9))
        requests.append(predict_request(png(int(rng.integers(count // 3)), size), **fields))
    return requests


def answers(server: Live, requests: list[bytes], at_once: int) -> list[dict]:
    """What came back, without the times."""

    async def all_of_them():
        free = asyncio.Semaphore(at_once)

        async def one(request: bytes):
            async with free:
                return await exchange(server.url, request)

        return await asyncio.gather(*map(one, requests))

    replies = asyncio.run(all_of_them())
    assert {reply.status for reply in replies} == {200}
    return [{key: value for key, value in reply.json.items() if key != "timings"} for reply in replies]


def fingerprints(server: Live) -> set[str]:
    """Of every replica: each is held until all are."""
    everyone = threading.Barrier(server.handlers.served.settings.replicas)

    def look(replica, is_wanted):
        everyone.wait(PATIENCE)
        return fingerprint(replica.classifier.module)

    async def look_at_all():
        return await asyncio.gather(*(server.handlers.pool.run(look) for _ in range(everyone.parties)))

    return set(asyncio.run(look_at_all()))


@pytest.mark.parametrize("net", ["resnet26"] if SOAK else ["batch-norm", "transformer"])
def test_in_parallel_as_one_after_the_other(net):
    classifier = load("resnet26") if net == "resnet26" else build_classifier(net)
    with live(build_served(classifier, queue=PLACES)) as server:
        requests = mixed(REQUESTS, classifier.size)
        alone = answers(server, requests, 1)
        together = answers(server, requests, AT_ONCE)
        assert together == alone
        assert any(answer["adapted"] and answer["top"] != answer["source"]["top"] for answer in alone)
        assert fingerprints(server) == {fingerprint(classifier.module)} and server.handlers.pool.replaced == 0
