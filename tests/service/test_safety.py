"""Limits, tokens and headers: what an untrusted client can send, and what a response reveals."""

import pytest

from memo_tta.errors import ConfigError
from memo_tta.service.replica import Replica
from memo_tta.service.settings import Settings
from tests.service.bad_requests import decompression_bomb
from tests.service.http_client import multipart, predict_request, request
from tests.service.live import build_served_model, image_file, live_service

KIB = 2**10


@pytest.fixture(scope="module")
def small():
    """A service with small limits."""
    with live_service(build_served_model(max_body=64 * KIB, max_pixels=10_000, body_seconds=0.5)) as service:
        yield service


def chunked(*chunks: bytes) -> tuple[bytes, ...]:
    head = request("/v1/predict", content_type=multipart(b"")[1], headers={"Transfer-Encoding": "chunked"})
    encoded = [b"%x\r\n" % len(chunk) + chunk + b"\r\n" for chunk in chunks]
    return head.replace(b"Content-Length: 0\r\n", b""), *encoded, b"0\r\n\r\n"


def test_a_body_in_chunks_is_a_body(small):
    body, _ = multipart(image_file())
    assert small.send(*chunked(body[:50], body[50:])).status == 200


def test_a_body_above_the_limit_is_refused_however_it_is_sent(small):
    large = bytes(65 * KIB)
    for reply in (
        small.predict(large),
        small.send(*chunked(large[:KIB], *[large[KIB : 9 * KIB]] * 9)),
        small.send(request("/v1/predict", headers={"Content-Length": "9" * 15})),
    ):
        assert (reply.status, reply.json["error"]) == (413, "too_large")
    assert small.predict(image_file()).status == 200


def test_too_many_pixels_are_refused_before_they_are_decoded(small, monkeypatch):
    monkeypatch.setattr(Replica, "predict", None)  # no request may reach it
    for size in ((101, 100), (60_000, 60_000), (9_999, 1), (1, 9_999)):  # the last two once they are resized
        reply = small.predict(decompression_bomb(*size))
        assert (reply.status, reply.json["error"]) == (413, "too_many_pixels")


def test_an_image_is_known_by_its_content(small):
    for data, status, error in (
        (b"\x89PNG but no picture", 415, "unsupported_type"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "unsupported_type"),
        (image_file()[:-30], 422, "damaged_image"),
        (decompression_bomb(90, 90)[:60], 422, "damaged_image"),
        (b"", 422, "invalid"),
    ):
        reply = small.predict(data)
        assert (reply.status, reply.json["error"]) == (status, error)


def test_a_slow_body_is_cut_off(small):
    whole = predict_request(image_file())
    reply = small.send(whole[:-40], whole[-40:-20], pause=1.0)
    assert (reply.status, reply.json["error"]) == (408, "slow_body")


def test_a_token_opens_what_it_must(open_client):
    client = open_client(token="open-sesame")
    for path in ("/", "/healthz", "/readyz", "/openapi.json", "/static/page.css"):
        assert client.get(path).status_code == 200
    files = {"image": image_file()}
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "open-sesame"},
        {"Authorization": b"\xf6"},
    ):
        for reply in (
            client.get("/metrics", headers=headers),
            client.get("/v1/model", headers=headers),
            client.post("/v1/predict", files=files, headers=headers),
            client.post("/page/predict", files=files, headers=headers),
        ):
            assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
    headers = {"Authorization": "Bearer open-sesame"}
    assert client.post("/v1/predict", files=files, headers=headers).status_code == 200
    document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "401" in document["paths"]["/v1/predict"]["post"]["responses"]


def test_every_answer_has_the_security_headers(server):
    for path in ("/", "/nowhere", "/v1/model", "/static/htmx.min.js"):
        headers = server.send(request(path, method="GET")).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff" and "server" not in headers
    assert server.send(request("/", method="GET")).headers["cache-control"] == "no-store"


def test_a_mistake_of_the_service_tells_nothing_and_the_next_request_works(open_client, monkeypatch, caplog):
    client = open_client()

    def fail(self, *_):
        raise RuntimeError("secret at /somewhere/file.py")

    with monkeypatch.context() as patch:
        patch.setattr(Replica, "predict", fail)
        reply = client.post("/v1/predict", files={"image": image_file()})
    assert reply.status_code == 500 and reply.json()["error"] == "internal"
    assert "secret" not in reply.text and "secret at" in caplog.text
    assert "nosniff" in reply.headers["x-content-type-options"]
    assert client.post("/v1/predict", files={"image": image_file()}).status_code == 200


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"queue": -1}, {"token": "two words"}, {"token": ""}])
def test_settings_check_themselves(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"^{name}: expected"):
        Settings(**wrong)
