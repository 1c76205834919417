"""Concurrent requests get the same predictions as sequential ones, and leave the weights unchanged."""

import asyncio
import os
import threading
from typing import Any

import numpy as np
import pytest

from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.zoo import load
from memo_tta.service.deadline import IsCancelled
from memo_tta.service.replica import Replica
from tests.nets import build_classifier
from tests.service.http_client import Reply, exchange, predict_request
from tests.service.live import TIMEOUT, LiveService, build_served_model, image_file, live_service

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
N_REQUESTS, CONCURRENCY = (1000, 16) if SOAK else (60, 8)
QUEUE_SIZE = 64


def mixed_requests(count: int, size: int) -> list[bytes]:
    """Return requests with various methods and options; some images occur repeatedly."""
    rng = np.random.default_rng(0)
    requests: list[bytes] = []
    for _ in range(count):
        fields: dict[str, object] = {
            "seed": int(rng.integers(3)),
            "explain": str(bool(rng.random() < 0.2)).lower(),
        }
        fields["method"] = str(rng.choice(["memo", "memo", "memo", "tta", "source", "memo-ce", "tent-bs1"]))
        if fields["method"] in ("memo", "memo-ce", "tta"):
            fields["n_views"] = int(rng.integers(1, 9))
        requests.append(predict_request(image_file(int(rng.integers(count // 3)), size), **fields))
    return requests


def responses(server: LiveService, requests: list[bytes], concurrency: int) -> list[dict[str, Any]]:
    """Send the requests, some of them concurrently; return the responses without their timings."""

    async def send_all() -> list[Reply]:
        free = asyncio.Semaphore(concurrency)

        async def send(request: bytes) -> Reply:
            async with free:
                return await exchange(server.url, request)

        return await asyncio.gather(*map(send, requests))

    replies = asyncio.run(send_all())
    assert {reply.status for reply in replies} == {200}
    return [{key: value for key, value in reply.json.items() if key != "timings"} for reply in replies]


def fingerprints(server: LiveService) -> set[str]:
    """Return the fingerprint of every replica; each one blocks until all do, so that none is asked twice."""
    barrier = threading.Barrier(server.handlers.served_model.settings.replicas)

    def compute(replica: Replica, _is_cancelled: IsCancelled) -> str:
        barrier.wait(TIMEOUT)
        return fingerprint(replica.classifier.module)

    async def compute_all() -> list[str]:
        return await asyncio.gather(*(server.handlers.pool.run(compute) for _ in range(barrier.parties)))

    return set(asyncio.run(compute_all()))


@pytest.mark.parametrize("net", ["resnet26"] if SOAK else ["batch-norm", "transformer"])
def test_in_parallel_as_one_after_the_other(net):
    classifier = load("resnet26") if net == "resnet26" else build_classifier(net)
    with live_service(build_served_model(classifier, queue=QUEUE_SIZE)) as server:
        assert isinstance(classifier.size, int)
        requests = mixed_requests(N_REQUESTS, classifier.size)
        sequential = responses(server, requests, 1)
        concurrent = responses(server, requests, CONCURRENCY)
        assert concurrent == sequential
        assert any(each["adapted"] and each["top"] != each["source"]["top"] for each in sequential)
        assert fingerprints(server) == {fingerprint(classifier.module)}
        assert server.handlers.pool.n_replaced == 0
