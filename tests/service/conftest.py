import pytest
from starlette.testclient import TestClient

from memo_tta.service.app import build_app
from tests.service.live import build_served, live, until


@pytest.fixture(scope="module")
def server():
    """A service on loopback with a small model."""
    with live(build_served()) as running:
        yield running


@pytest.fixture
def open_client():
    """A client of the application itself, for settings of the test's own."""
    clients = []

    def build(classifier=None, **settings):
        app = build_app(build_served(classifier, **settings))
        client = TestClient(app)
        client.__enter__()
        clients.append(client)
        until(lambda: app.state.handlers.pool.is_ready)
        return client

    yield build
    for client in clients:
        client.__exit__(None, None, None)
