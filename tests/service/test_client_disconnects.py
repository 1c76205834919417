"""Clients that disconnect before their response."""

import threading
from collections.abc import Generator

import pytest
from torch import Tensor, nn

import memo_tta as mt
from tests.nets import CLASSES, SIZE, GroupNormNet
from tests.service.http_client import predict_request, request
from tests.service.live import TIMEOUT, LiveService, build_served_model, image_file, live_service, wait_until

ENTERED, MAY_CONTINUE = threading.Event(), threading.Event()


class BlockedNet(GroupNormNet):
    """A module whose forward pass blocks until it may continue."""

    def forward(self, input: Tensor) -> Tensor:
        ENTERED.set()
        assert MAY_CONTINUE.wait(TIMEOUT)
        return super().forward(input)


@pytest.fixture
def blocked() -> Generator[LiveService]:
    """A service with one replica that blocks before its first layer."""
    MAY_CONTINUE.set()
    module: nn.Module = BlockedNet()
    classifier = mt.Classifier(
        module, size=SIZE, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list("abcde")[:CLASSES]
    )
    with live_service(build_served_model(classifier, replicas=1, queue=2)) as service:
        ENTERED.clear()
        MAY_CONTINUE.clear()
        yield service
        MAY_CONTINUE.set()


def test_a_place_in_the_queue_and_a_replica_come_free_when_clients_leave(blocked):
    pool = blocked.handlers.pool
    staying = threading.Thread(target=blocked.predict, args=(image_file(),))
    staying.start()
    assert ENTERED.wait(TIMEOUT)
    leaving = [blocked.connect_and_send(predict_request(image_file(n))) for n in (1, 2)]
    wait_until(lambda: pool.queue_depth == 2)
    assert blocked.predict(image_file()).status == 503, "the queue is full"
    for client in leaving:
        client.close()
    wait_until(lambda: pool.queue_depth == 0)  # although the replica still blocks
    assert pool.n_busy == 1
    MAY_CONTINUE.set()
    staying.join(TIMEOUT)
    blocked.wait_until_idle()
    text = blocked.send(request("/metrics", method="GET")).body.decode().splitlines()
    assert "memo_clients_left_total 2.0" in text
    assert 'memo_predictions_total{method="memo",status="adapted"} 1.0' in text


def test_work_for_a_client_that_left_ends_at_the_next_layer(blocked):
    with blocked.connect_and_send(predict_request(image_file())):
        assert ENTERED.wait(TIMEOUT)
    wait_until(lambda: "memo_clients_left_total 1.0" in blocked.handlers.metrics.text().decode())
    assert blocked.handlers.pool.n_busy == 1
    MAY_CONTINUE.set()
    blocked.wait_until_idle()
    assert "memo_predictions_total{" not in blocked.handlers.metrics.text().decode(), "it did not finish"
    assert blocked.handlers.pool.n_replaced == 0 and blocked.predict(image_file()).status == 200
