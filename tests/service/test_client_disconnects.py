"""Clients that leave before their answer."""

import threading

import pytest
from torch import Tensor, nn

import memo_tta as mt
from tests.nets import CLASSES, SIZE, GroupNormNet
from tests.service.http_client import predict_request, request
from tests.service.live import PATIENCE, build_served, live, png, until

ENTERED, MAY_GO_ON = threading.Event(), threading.Event()


class Held(GroupNormNet):
    """Stops where it enters, until it may go on."""

    def forward(self, input: Tensor) -> Tensor:
        ENTERED.set()
        assert MAY_GO_ON.wait(PATIENCE)
        return super().forward(input)


@pytest.fixture
def held():
    """A service with one replica that is held at its first layer."""
    MAY_GO_ON.set()
    module: nn.Module = Held()
    classifier = mt.Classifier(
        module, size=SIZE, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list("abcde")[:CLASSES]
    )
    with live(build_served(classifier, replicas=1, queue=2)) as running:
        ENTERED.clear()
        MAY_GO_ON.clear()
        yield running
        MAY_GO_ON.set()


def test_a_place_in_the_queue_and_a_replica_come_free_when_clients_leave(held):
    pool = held.handlers.pool
    staying = threading.Thread(target=held.predict, args=(png(),))
    staying.start()
    assert ENTERED.wait(PATIENCE)
    leaving = [held.begin(predict_request(png(n))) for n in (1, 2)]
    until(lambda: pool.depth == 2)
    assert held.predict(png()).status == 503, "the queue is full"
    for client in leaving:
        client.close()
    until(lambda: pool.depth == 0)  # though the replica is still held
    assert pool.busy == 1
    MAY_GO_ON.set()
    staying.join(PATIENCE)
    held.wait_until_idle()
    text = held.send(request("/metrics", method="GET")).body.decode().splitlines()
    assert "memo_clients_left_total 2.0" in text
    assert 'memo_predictions_total{method="memo",status="adapted"} 1.0' in text


def test_work_for_a_client_that_left_ends_at_the_next_layer(held):
    with held.begin(predict_request(png())):
        assert ENTERED.wait(PATIENCE)
    until(lambda: "memo_clients_left_total 1.0" in held.handlers.metrics.text().decode())
    assert held.handlers.pool.busy == 1
    MAY_GO_ON.set()
    held.wait_until_idle()
    assert "memo_predictions_total{" not in held.handlers.metrics.text().decode(), "it was not finished"
    assert held.handlers.pool.replaced == 0 and held.predict(png()).status == 200
