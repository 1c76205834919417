"""Fixtures: a service on loopback, and clients of applications with settings of their own."""

from collections.abc import Generator

import pytest
from starlette.testclient import TestClient

from memo_tta.service.app import build_app
from tests.service.live import LiveService, build_served_model, live_service, wait_until


@pytest.fixture(scope="module")
def server() -> Generator[LiveService]:
    """A service on loopback with a small model."""
    with live_service(build_served_model()) as service:
        yield service


@pytest.fixture
def open_client():
    """A function that starts an application with the given settings and returns a client of it."""
    clients: list[TestClient] = []

    def build(classifier=None, **settings) -> TestClient:
        app = build_app(build_served_model(classifier, **settings))
        client = TestClient(app, base_url="http://localhost")
        client.__enter__()
        clients.append(client)
        wait_until(lambda: app.state.handlers.pool.is_ready)
        return client

    yield build
    for client in clients:
        client.__exit__(None, None, None)
