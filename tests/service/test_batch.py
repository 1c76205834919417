"""Several images in one request: their answers in order, errors in place, and their share of the pool."""

import asyncio
import base64
import json
import threading

import pytest

from memo_tta.service.api_errors import ApiError
from memo_tta.service.batch import predict_each
from memo_tta.service.replica import Replica
from tests.service.http_client import BOUNDARY, request
from tests.service.live import TIMEOUT, build_served_model, image_file, live_service, wait_until

PATH, JSON = "/v1/predict:batch", "application/json"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def batch_request(*images: str, **options: object) -> bytes:
    return request(PATH, json.dumps({"images": images, **options}).encode(), JSON)


def without_timings(answer: dict) -> dict:
    return {name: value for name, value in answer.items() if name != "timings"}


def test_each_image_is_answered_as_alone_and_in_order(server):
    files = [image_file(seed) for seed in range(5)]
    options = {"method": "memo", "n_views": 3, "seed": 5, "top_k": 2}
    reply = server.send(batch_request(*map(encoded, files), **options))
    assert reply.status == 200 and len(reply.json["results"]) == 5
    for data, answer in zip(files, reply.json["results"], strict=True):
        assert without_timings(answer) == without_timings(server.predict(data, **options).json)
    assert len({answer["score"] for answer in reply.json["results"]}) == 5


def test_a_form_of_several_files_says_the_same(server):
    files = [image_file(seed) for seed in range(3)]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'.encode()
    field = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="seed"\r\n\r\n4\r\n'.encode()
    body = b"".join(head + data + b"\r\n" for data in [*files, b""]) + field + f"--{BOUNDARY}--\r\n".encode()
    by_form = server.send(request(PATH, body, f"multipart/form-data; boundary={BOUNDARY}")).json["results"]
    by_json = server.send(batch_request(*map(encoded, files), "", seed=4)).json["results"]
    assert [*map(without_timings, by_form)] == [*map(without_timings, by_json)]
    assert by_form[3] == {"error": "invalid", "message": "image: expected a file, got nothing"}


def test_an_image_that_fails_has_its_error_in_its_place(server):
    good = encoded(image_file())
    images = [
        good,
        "no base64!",
        encoded(b"no image"),
        "http://127.0.0.1/a.png",
        encoded(image_file()[:-30]),
        f"data:image/png;base64,{good}",
    ]
    reply = server.send(batch_request(*images))
    errors = [answer.get("error") for answer in reply.json["results"]]
    assert reply.status == 200
    assert errors == [None, "invalid", "unsupported_type", "invalid", "damaged_image", None]
    assert all(set(answer) == {"error", "message"} for answer in reply.json["results"][1:5])
    first, last = reply.json["results"][0], reply.json["results"][5]
    assert without_timings(first) == without_timings(last)


def test_a_failure_inside_the_service_hurts_one_image_and_tells_nothing(open_client, monkeypatch, caplog):
    client, predict = open_client(replicas=1), Replica.predict
    calls = []

    def fail_once(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("secret")
        return predict(*arguments)

    monkeypatch.setattr(Replica, "predict", fail_once)
    results = client.post(PATH, json={"images": [encoded(image_file(seed)) for seed in range(3)]}).json()
    assert [answer.get("error") for answer in results["results"]] == [None, "internal", None]
    assert "secret" not in str(results) and "secret" in caplog.text


@pytest.mark.parametrize(
    "body", [{"images": []}, {"images": ["aaaa"] * 4}, {"image": "aaaa"}, {"images": [1]}]
)
def test_a_batch_has_at_least_one_image_and_at_most_those_allowed(open_client, body):
    client = open_client(max_batch=3)
    assert client.get("/v1/model").json()["limits"]["max_batch"] == 3
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["PredictBatchJson"]["properties"]["images"]["maxItems"] == 3
    assert schemas["PredictBatchForm"]["properties"]["image"]["maxItems"] == 3
    reply = client.post(PATH, json=body)
    assert reply.status_code == 422 and reply.json()["error"] == "invalid"
    several = [("image", ("a.png", image_file(), "image/png"))] * 4
    assert client.post(PATH, files=several).status_code == 400
    assert client.post(PATH, files=several[:3]).status_code == 200
    assert client.post(PATH, files={}, data={"seed": "1"}).status_code == 415
    assert client.post(PATH, json={"images": ["aaaa"], "n_views": 0}).status_code == 422


def test_many_data_urls_are_not_too_many_parts(open_client):
    client = open_client(max_batch=300, method="source")
    images = [f"data:image/png;base64,{encoded(image_file())}"] * 300
    reply = client.post(PATH, json={"images": images})
    assert reply.status_code == 200 and all("label" in answer for answer in reply.json()["results"])


def test_the_whole_body_is_within_the_limit(open_client):
    client = open_client(max_body=3 * 2**10)
    image = encoded(image_file())
    assert client.post(PATH, json={"images": [image] * 2}).status_code == 200
    assert client.post(PATH, json={"images": [image] * 16}).status_code == 413


def test_a_batch_counts_every_image_and_one_request(open_client):
    client = open_client()
    client.post(PATH, json={"images": [encoded(image_file(seed)) for seed in range(3)] + ["?"]})
    lines = client.get("/metrics").text.splitlines()
    assert 'memo_predictions_total{method="memo",status="adapted"} 3.0' in lines
    assert f'memo_requests_total{{path="{PATH}",status="200"}} 1.0' in lines
    assert 'memo_stage_seconds_count{stage="total"} 3.0' in lines


def test_the_deadline_is_that_of_the_whole_request(open_client):
    client = open_client(replicas=1)
    images = [encoded(image_file(seed)) for seed in range(3)]
    reply = client.post(PATH, json={"images": images, "deadline_ms": 1}).json()
    assert [answer["status"] for answer in reply["results"]] == ["deadline"] * 3


@pytest.fixture
def held(monkeypatch):
    """A service with one replica and a queue of one, whose predictions wait for an event."""
    entered, may_continue, predict = threading.Event(), threading.Event(), Replica.predict

    def wait(*arguments):
        entered.set()
        assert may_continue.wait(TIMEOUT)
        return predict(*arguments)

    with live_service(build_served_model(replicas=1, queue=1, method="source")) as service:
        monkeypatch.setattr(Replica, "predict", wait)
        yield service, entered, may_continue
        may_continue.set()


def in_thread(action) -> tuple[threading.Thread, list]:
    replies = []
    thread = threading.Thread(target=lambda: replies.append(action()))
    thread.start()
    return thread, replies


def test_a_batch_leaves_room_in_the_queue_and_none_is_503(held):
    service, entered, may_continue = held
    batch = batch_request(*(encoded(image_file(seed)) for seed in range(6)))
    running, answers = in_thread(lambda: service.send(batch))
    assert entered.wait(TIMEOUT)
    assert service.handlers.pool.queue_depth == 0, "the other images wait outside"
    waiting, others = in_thread(lambda: service.predict(image_file(9)))
    wait_until(lambda: service.handlers.pool.queue_depth == 1)
    refused = service.send(batch)
    assert (refused.status, refused.json["error"]) == (503, "busy") and int(
        refused.headers["retry-after"]
    ) > 0
    may_continue.set()
    running.join(TIMEOUT)
    waiting.join(TIMEOUT)
    assert others[0].status == answers[0].status == 200
    assert all("label" in answer or answer["error"] == "busy" for answer in answers[0].json["results"])
    assert "label" in answers[0].json["results"][0]


def test_a_client_that_leaves_cancels_the_rest(held):
    service, entered, may_continue = held
    with service.connect_and_send(batch_request(*(encoded(image_file(seed)) for seed in range(6)))):
        assert entered.wait(TIMEOUT)
    wait_until(lambda: "memo_clients_left_total 1.0" in service.handlers.metrics.text().decode())
    may_continue.set()
    service.wait_until_idle()
    assert "memo_predictions_total{" not in service.handlers.metrics.text().decode(), "none was finished"
    assert service.predict(image_file()).status == 200


async def each(outcomes: dict[str, list[object]], lanes: int) -> tuple[list, list[int]]:
    """Predict images whose attempts end with these outcomes; return the answers and how many ran at once."""
    running, most = 0, []

    async def predict(image: str) -> dict:
        nonlocal running
        running += 1
        most.append(running)
        await asyncio.sleep(0.01)
        running -= 1
        outcome = outcomes[image].pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return {"label": outcome}

    return await predict_each(list(outcomes), predict, lanes), most


def busy() -> ApiError:
    return ApiError("busy", headers={"Retry-After": "7"})


def test_an_image_for_which_there_is_no_room_is_left_to_the_other_lanes():
    answers, running = asyncio.run(each({"a": ["a"], "b": [busy(), "b"], "c": ["c"]}, 2))
    assert [answer["label"] for answer in answers] == ["a", "b", "c"] and max(running) == 2
    answers, _ = asyncio.run(each({"a": ["a"], "b": [busy()], "c": ["c"]}, 1))
    assert answers[1] == {"error": "busy", "message": busy().message} and answers[2] == {"label": "c"}


def test_where_no_image_finds_room_the_request_is_refused():
    with pytest.raises(ApiError) as refused:
        asyncio.run(each({"a": [busy(), busy()], "b": [busy(), busy()]}, 2))
    assert refused.value.name == "busy" and refused.value.headers["Retry-After"] == "7"
    answers, _ = asyncio.run(each({"a": [ApiError("invalid", "a")], "b": [busy(), busy()]}, 2))
    assert [answer["error"] for answer in answers] == ["invalid", "busy"]


def test_a_batch_is_shared_among_the_replicas():
    answers, running = asyncio.run(each({str(n): [n] for n in range(8)}, 3))
    assert [answer["label"] for answer in answers] == [*range(8)]
    assert max(running) == 3
