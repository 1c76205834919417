"""Bad requests are rejected, and the next valid request works.

`make load` measures that each rejection takes less than a second; these tests do not.
"""

import json
import os
from collections.abc import Generator
from typing import cast

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.service.bad_requests import KINDS, ServiceLimits, bad_request
from tests.service.http_client import request
from tests.service.live import LiveService, build_served_model, image_file, live_service

REQUESTS = 500 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 4 * len(KINDS)
LIMITS = ServiceLimits(max_body=2**20, body_seconds=0.3)
INTERNAL_DETAILS = (
    "Traceback",
    "Error",
    ".py",
    "/etc",
    "/usr",
    "pydantic",
    "PIL",
    "starlette",
    "http://",
    "https://",
)


@pytest.fixture(scope="module")
def strict() -> Generator[LiveService]:
    """A service with tight limits on bodies."""
    with live_service(
        build_served_model(max_body=LIMITS.max_body, body_seconds=LIMITS.body_seconds)
    ) as service:
        yield service


def test_bad_requests_are_refused_and_leave_nothing_behind(strict):
    for seed in range(REQUESTS):
        kind, bad = bad_request(seed, LIMITS)
        reply = strict.send(*bad.pieces, pause=bad.pause, disconnects=bad.disconnects)
        if bad.disconnects:
            continue
        assert 400 <= reply.status < 500, (seed, kind, reply)
        error = json.loads(reply.body)
        assert set(error) == {"error", "message"}, (seed, kind)
        assert not any(word in error["message"] for word in INTERNAL_DETAILS)
    strict.wait_until_idle()
    assert strict.predict(image_file()).status == 200 and strict.handlers.pool.n_replaced == 0


READ_ONLY = ("/v1/model", "/healthz", "/readyz", "/metrics")  # without parameters no request can be invalid


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        ("POST", "/v1/predict", GenerationMode.POSITIVE),
        ("POST", "/v1/predict", GenerationMode.NEGATIVE),
        ("POST", "/v1/predict:batch", GenerationMode.POSITIVE),
        ("POST", "/v1/predict:batch", GenerationMode.NEGATIVE),
        *(("GET", path, GenerationMode.POSITIVE) for path in READ_ONLY),
    ],
)
def test_the_service_does_what_its_document_says(strict, method, path, mode):
    document = schemathesis.openapi.from_url(f"{strict.url}/openapi.json")

    @settings(suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)))
    @given(case=document[path][method].as_strategy(generation_mode=mode))
    def conforms(case):
        # The document cannot express that random bytes are no image; and in a form, a list of one value or
        # of none looks like that value or like a missing field.
        excluded = [positive_data_acceptance]
        if case.media_type == "multipart/form-data":
            excluded.append(negative_data_rejection)
        case.call_and_validate(excluded_checks=excluded)

    conforms()
    strict.wait_until_idle()


def test_a_json_body_of_a_million_parts_is_refused_before_they_are_made(strict):
    for body in (b'{"image": [' + b"0," * 400_000 + b"0]}", b"{" + b'"a":0,' * 100_000 + b'"b":0}'):
        for path in ("/v1/predict", "/v1/predict:batch"):
            reply = strict.send(request(path, body, "application/json"))
            assert (reply.status, reply.json["error"]) == (400, "bad_request")
