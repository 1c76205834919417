"""Connections that send nothing, or read nothing, end; others are served meanwhile."""

import socket
import time
from contextlib import ExitStack

import pytest

from memo_tta.service import connections
from tests.service.http_client import request
from tests.service.live import LiveService, build_served_model, image_file, live_service, wait_until

HEADERS = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def impatient(monkeypatch):
    """A service that waits for a fraction of a second, and keeps six connections at the most."""
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.4)
    monkeypatch.setattr(connections, "STALL_SECONDS", 0.4)
    with live_service(build_served_model()) as service:
        yield service


@pytest.fixture
def crowded(monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 6)
    monkeypatch.setattr(connections, "_allowed_connections", lambda: 6)
    with live_service(build_served_model()) as service:
        yield service


def received(client: socket.socket) -> bytes:
    """Return everything that the server sends until it closes the connection."""
    client.settimeout(20)
    pieces = []
    try:
        while piece := client.recv(2**16):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


@pytest.mark.parametrize("start", [b"", b"GET", HEADERS, HEADERS + b"X: " + b"y" * 9000])
def test_headers_that_never_end_are_given_up(impatient, start):
    with impatient.connect_and_send(start) as client:
        head, _, body = received(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ") and b"nosniff" in head and b'"slow_headers"' in body


def test_headers_that_trickle_in_have_no_more_time(impatient):
    with impatient.connect_and_send(HEADERS) as client:
        client.settimeout(0.05)
        for _ in range(200):
            try:
                client.sendall(b"X: y\r\n")
                if client.recv(2**16):
                    break
            except TimeoutError:
                continue
        else:
            pytest.fail("the connection stays open")


def test_the_time_for_headers_begins_again_with_each_response(impatient):
    with impatient.connect_and_send(b"") as client:
        for _ in range(4):
            time.sleep(0.2)
            client.sendall(HEADERS + b"\r\n")
        replies = received(client)
    assert replies.count(b"HTTP/1.1 200 ") == 4 and b"slow_headers" in replies


def test_a_response_that_is_not_read_is_given_up(impatient):
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", int(impatient.url.rpartition(":")[2])))
        client.setblocking(False)
        wanted = request("/static/pico.min.css", method="GET").replace(b"Connection: close\r\n", b"")

        def is_closed() -> bool:
            try:
                client.send(wanted)
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
            return False

        wait_until(is_closed)


@pytest.mark.parametrize("message", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9\r\n\r\n", b"GET /\r\n\r\n" * 3])
def test_what_is_not_http_is_refused_like_everything_else(server, message):
    with server.connect_and_send(message) as client:
        head, _, body = received(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b'"bad_request"' in body
    assert b"application/json" in head and b"nosniff" in head and b"content-security-policy" in head


def test_silent_connections_make_room_for_others(crowded: LiveService):
    with ExitStack() as silent:
        clients = [silent.enter_context(crowded.connect_and_send(HEADERS)) for _ in range(20)]
        for _ in range(5):
            assert crowded.send(request("/healthz", method="GET")).status == 200
            assert crowded.predict(image_file()).status == 200
        assert received(clients[0]) and received(clients[10])  # the oldest ones were closed


def test_a_connection_with_a_request_is_not_closed_for_others(crowded: LiveService):
    whole = request("/v1/predict", b"x" * 99, "application/json")
    with ExitStack() as silent, crowded.connect_and_send(whole[:-40]) as client:
        assert crowded.send(request("/healthz", method="GET")).status == 200  # by now its headers are read
        for _ in range(20):
            silent.enter_context(crowded.connect_and_send(b""))
        client.sendall(whole[-40:])
        assert received(client).startswith(b"HTTP/1.1 400 ")
