"""Whatever is sent, the answer is a refusal, and the next good request works.

That each takes less than a second is measured by `make load`, not here.
"""

import json
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.service.bad_requests import KINDS, bad_request
from tests.service.live import build_served, live, png

REQUESTS = 500 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 4 * len(KINDS)
MAX_BODY, BODY_SECONDS = 2**20, 0.3
TELLTALES = (
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
def strict():
    with live(build_served(max_body=MAX_BODY, body_seconds=BODY_SECONDS)) as running:
        yield running


def test_bad_requests_are_refused_and_leave_nothing_behind(strict):
    for seed in range(REQUESTS):
        bad = bad_request(seed, MAX_BODY, BODY_SECONDS)
        reply = strict.send(*bad.pieces, pause=bad.pause, leave=bad.leave)
        if bad.leave:
            continue
        assert 400 <= reply.status < 500, (seed, bad.kind, reply)
        said = json.loads(reply.body)
        assert set(said) == {"error", "message"}, (seed, bad.kind)
        assert not any(word in said["message"] for word in TELLTALES)
    strict.wait_until_idle()
    assert strict.predict(png()).status == 200 and strict.handlers.pool.replaced == 0


READ = ("/v1/model", "/healthz", "/readyz", "/metrics")  # without parameters nothing can be wrong


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        ("POST", "/v1/predict", GenerationMode.POSITIVE),
        ("POST", "/v1/predict", GenerationMode.NEGATIVE),
        *(("GET", path, GenerationMode.POSITIVE) for path in READ),
    ],
)
def test_the_service_does_what_its_document_says(strict, method, path, mode):
    document = schemathesis.openapi.from_url(f"{strict.url}/openapi.json")

    @settings(suppress_health_check=list(HealthCheck))
    @given(case=document[path][method].as_strategy(generation_mode=mode))
    def conforms(case):
        # That random bytes are an image is more than the document can promise; and in a form, a list of one
        # value, or of none, looks like that value, or like nothing.
        without = [positive_data_acceptance]
        if case.media_type == "multipart/form-data":
            without.append(negative_data_rejection)
        case.call_and_validate(excluded_checks=without)

    conforms()
    strict.wait_until_idle()
