"""Thousands of hostile requests, one after the other, and what they leave behind in a service."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from time import perf_counter, sleep
from typing import Any

from tests.service.bad_requests import BadRequest, ServiceLimits, bad_request, scan_bomb, transparent_bomb
from tests.service.http_client import predict_request
from tests.service.live import image_file
from tests.service.serve_process import ServeProcess

LIMITS = ServiceLimits(max_body=10 * 2**20, body_seconds=10.0)  # the service's defaults
COSTLY_EVERY = 100  # requests


@dataclass(frozen=True)
class Damage:
    """What the requests left behind."""

    requests: int
    unexpected: Counter[str]  # kinds of requests, and statuses that they should not have had
    slowest: tuple[float, str]  # refusal, in seconds, and its kind
    memory: tuple[int, int]  # bytes after the first requests and at the end
    open_files: tuple[int, int]  # before and after
    answers: tuple[Any, Any]  # to the same valid request, before and after
    wrong_fingerprints: int  # of replicas
    replaced: float  # replicas


def attack(service: ServeProcess, requests: int, warm: int) -> Damage:
    """Send the requests, the first `warm` of them before memory is measured."""
    valid = predict_request(image_file(7), n_views=8)
    answer, files = _answer(service, valid), service.open_files
    unexpected, slowest, memory = Counter[str](), (0.0, ""), 0
    for number in range(requests):
        kind, request, may_succeed = _hostile_request(number)
        started = perf_counter()
        reply = service.send(*request.pieces, disconnects=request.disconnects)
        seconds = perf_counter() - started
        if reply.status == 200:
            is_expected = may_succeed
        else:
            is_expected = request.disconnects or reply.status == 503 or 400 <= reply.status < 500
            slowest = max(slowest, (seconds, kind))
        if not is_expected:
            unexpected[f"{kind}: {reply.status}"] += 1
        if number == warm:
            memory = service.memory
    after, model = _answer(service, valid), service.get("/v1/model").json
    return Damage(
        requests,
        unexpected,
        slowest,
        (memory, service.memory),
        (files, min(_repeatedly(lambda: service.open_files))),  # the last connection may still be closing
        (answer, after),
        sum(found != model["fingerprint"] for found in model["replica_fingerprints"]),
        service.metric("memo_replicas_replaced_total"),
    )


def _hostile_request(number: int) -> tuple[str, BadRequest, bool]:
    """Return a kind, a request, and whether it may succeed: some are valid, but cost much."""
    if number % COSTLY_EVERY == 0:
        kind, request = list(_costly_requests().items())[number // COSTLY_EVERY % 2]
        return kind, request, True
    kind, request = bad_request(number, LIMITS)
    if request.pause:  # those are slow on purpose
        return _hostile_request(number + 1)
    return kind, request, False


@cache
def _costly_requests() -> dict[str, BadRequest]:
    images = {"large image": transparent_bomb(4990, 4990), "scan bomb": scan_bomb(3000)}
    return {kind: BadRequest((predict_request(image, deadline_ms=300),)) for kind, image in images.items()}


def _repeatedly(measure: Callable[[], int]) -> Iterator[int]:
    for _ in range(30):
        yield measure()
        sleep(0.1)


def _answer(service: ServeProcess, request: bytes) -> Any:
    reply = service.send(request).json
    return {name: value for name, value in reply.items() if name != "timings"}
