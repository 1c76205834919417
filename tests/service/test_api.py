"""Responses of the API, compared with the same methods called in Python."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

import memo_tta as mt
from memo_tta.methods import METHODS
from memo_tta.service.api_errors import API_ERRORS
from tests.nets import SIZE, build_classifier
from tests.service.http_client import request
from tests.service.live import build_served_model, image_file, live_service

OPTIONS = {"n_views": 4, "lr": 0.05}


def predict_directly(data: bytes, method: str = "memo", **options):
    robust = METHODS[method](build_classifier("group-norm"), **options)
    return robust.predict(Image.open(io.BytesIO(data)))


def matches(response: dict, prediction: mt.Prediction) -> bool:
    return response["top"] == prediction.top(5) and response["entropy"] == pytest.approx(prediction.entropy)


def test_it_answers_as_the_method_does_in_python(server):
    for seed in range(3):
        data = image_file(seed)
        response, expected = server.predict(data).json, predict_directly(data, **OPTIONS)
        assert matches(response, expected) and matches(response["source"], expected.source)
        assert response["adapted"] and response["reason"] is None and expected.adapted
        assert response["marginal_entropy"] == expected.marginal_entropy
        assert (response["label"], response["index"], response["score"]) == (
            expected.label,
            expected.index,
            expected.score,
        )
        assert response["source"]["top"] != response["top"]


@pytest.mark.parametrize("method", ["source", "tta", "tent-bs1", "memo-pce", "memo-ce"])
def test_every_method_can_be_asked_for(server, method):
    response = server.predict(image_file(), method=method).json
    assert matches(response, predict_directly(image_file(), method)) and response["method"] == method


def test_json_and_a_form_say_the_same(server):
    fields = {"n_views": 3, "seed": 7, "top_k": 2, "lr": 0.1}
    body = {"image": base64.b64encode(image_file()).decode(), **fields}
    by_json = server.send(request("/v1/predict", json.dumps(body).encode(), "application/json")).json
    by_form = server.predict(image_file(), **fields).json
    expected = predict_directly(image_file(), n_views=3, seed=7, lr=0.1)
    assert by_json["top"] == by_form["top"] == expected.top(2)
    assert (by_json["n_views"], by_json["seed"]) == (3, 7)


def test_the_seed_decides_the_views(server):
    first, again, other = (server.predict(image_file(), seed=seed).json["top"] for seed in (1, 1, 2))
    assert first == again != other


def test_explain_lists_the_views_with_their_labels(server):
    response = server.predict(image_file(), explain="true", n_views=5).json
    expected = mt.Memo(build_classifier("group-norm"), **{**OPTIONS, "n_views": 5}).explain(
        Image.open(io.BytesIO(image_file()))
    )
    assert matches(response, expected.prediction)
    assert [view["before"] for view in response["views"]] == [p.top(1)[0] for p in expected.before]
    assert [view["after"] for view in response["views"]] == [p.top(1)[0] for p in expected.after]
    for view, picture in zip(
        response["views"], build_classifier("group-norm").pictures(expected.views), strict=True
    ):
        data = base64.b64decode(view["thumbnail"].removeprefix("data:image/png;base64,"))
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), picture)
    assert server.predict(image_file()).json["views"] is None
    assert server.predict(image_file(), explain="true", method="source").json["views"] == []


def test_timings_are_of_the_stages(server):
    timings = server.predict(image_file()).json["timings"]
    stages = [timings[f"{name}_ms"] for name in ("queue", "decode", "source", "views", "model", "predict")]
    assert all(stage >= 0 for stage in stages) and 0 < sum(stages) <= timings["total_ms"]


def test_a_method_without_views_refuses_their_number(server):
    reply = server.predict(image_file(), method="source", n_views=4)
    assert reply.status == 422 and reply.json == {
        "error": "invalid",
        "message": "n_views: the method source has no such option",
    }


def test_the_model_says_what_is_served(server):
    model = server.send(request("/v1/model", method="GET")).json
    classifier = build_classifier("group-norm")
    assert model["labels"] == list("abcde") and model["input_size"] == SIZE
    assert model["parameters"] == sum(p.numel() for p in classifier.module.parameters())
    assert model["methods"]["memo"] == {"n_views": 4, "lr": 0.05} and model["methods"]["source"] == {}
    assert not {"tent", "bn", "ttt", "bn1"} & set(model["methods"]), (
        "they need a batch, another head, or batch norm"
    )
    assert model["limits"]["max_views"] == 128 and model["replicas"] == 2


def test_health_and_readiness(server):
    assert server.send(request("/healthz", method="GET")).json == {"status": "ok"}
    assert server.send(request("/readyz", method="GET")).json == {"status": "ready"}


def test_metrics_count_what_happened():
    with live_service(build_served_model()) as fresh:
        fresh.predict(image_file())
        fresh.predict(image_file(), method="source")
        fresh.predict(b"no image")
        text = fresh.send(request("/metrics", method="GET")).body.decode()
    for line in (
        'memo_requests_total{path="/v1/predict",status="200"} 2.0',
        'memo_requests_total{path="/v1/predict",status="415"} 1.0',
        'memo_predictions_total{method="memo",status="adapted"} 1.0',
        'memo_predictions_total{method="source",status="source"} 1.0',
        'memo_stage_seconds_count{stage="total"} 2.0',
        'memo_stage_seconds_count{stage="views"} 1.0',
        'memo_entropy_nats_count{when="after"} 2.0',
        "memo_queue_depth 0.0",
        "memo_replicas_replaced_total 0.0",
    ):
        assert line in text.splitlines()


def test_the_shift_is_in_the_answer_and_in_the_metrics():
    classifier = build_classifier("batch-norm")
    wanted = METHODS["source"](classifier).predict(Image.open(io.BytesIO(image_file())))
    with live_service(build_served_model(classifier)) as fresh:
        response = fresh.predict(image_file()).json
        text = fresh.send(request("/metrics", method="GET")).body.decode()
    assert response["shift"] == pytest.approx(wanted.shift) and response["clean_shift"] == wanted.clean_shift
    assert "memo_shift_count 1.0" in text.splitlines()


def test_the_document_has_every_refusal_and_its_examples_work(server):
    document = server.send(request("/openapi.json", method="GET")).json
    prediction_paths = {"/v1/predict", "/v1/predict:batch"}
    assert set(document["paths"]) == {*prediction_paths, "/v1/model", "/healthz", "/readyz", "/metrics"}
    for path in prediction_paths:
        operation = document["paths"][path]["post"]
        documented = {
            name: int(status)
            for status, response in operation["responses"].items()
            for name in response["content"]["application/json"].get("examples", {})
        }
        # No token is set, and the path and its method exist.
        impossible = {"unauthorized", "not_found", "method_not_allowed"}
        possible = {name: status for name, (status, _) in API_ERRORS.items() if name not in impossible}
        assert documented == possible
        example = operation["requestBody"]["content"]["application/json"]["examples"]["grey"]["value"]
        reply = server.send(request(path, json.dumps(example).encode(), "application/json"))
        answers = reply.json.get("results", [reply.json])
        assert reply.status == 200 and [len(answer["top"]) for answer in answers] == [3] * len(answers)
    for name in ("PredictForm", "PredictBatchForm"):
        form = document["components"]["schemas"][name]
        assert form["properties"]["n_views"]["anyOf"][0]["maximum"] == 128 and form["required"] == ["image"]


def predict_text(server, text: str):
    """Return the reply to a JSON body with this image."""
    return server.send(request("/v1/predict", json.dumps({"image": text}).encode(), "application/json"))


@pytest.mark.parametrize(
    "head", ["data:image/png;base64,", "DATA:;BASE64,", "data:image/png;name=a.png;base64,"]
)
def test_an_image_may_be_a_data_url(server, head):
    encoded = base64.b64encode(image_file()).decode()
    by_url, bare = predict_text(server, head + encoded), predict_text(server, encoded)
    assert by_url.status == 200 and by_url.json["top"] == bare.json["top"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://localhost:1/secret.png", "other URLs are not fetched"),
        ("https://evil.example/a.png", "other URLs are not fetched"),
        ("file:///etc/passwd", "other URLs are not fetched"),
        ("blob:https://evil.example/7", "other URLs are not fetched"),
        ("data:image/png,hello", "a URL like data:image/png;base64,"),
        ("data:image/png;base64", "a URL like data:image/png;base64,"),
        ("data:" + "a" * 1000 + ";base64,aaaa", "a URL like data:image/png;base64,"),
        ("data:image/png;base64,@@", "expected base64 after the comma"),
        ("no base64!", "expected base64, or a data: URL"),
    ],
)
def test_other_texts_are_refused_and_not_repeated(server, text, words):
    reply = predict_text(server, text)
    assert (reply.status, reply.json["error"]) == (422, "invalid") and words in reply.json["message"]
    assert not any(part in reply.json["message"] for part in ("secret", "evil", "passwd", "hello"))


def test_requests_choose_among_the_methods_that_the_operator_allows(open_client):
    client = open_client(method="restore", methods=("restore", "source"))
    assert list(client.get("/v1/model").json()["methods"]) == ["restore", "source"]
    for method, status in (("restore", 200), ("source", 200), ("memo", 422)):
        reply = client.post("/v1/predict", files={"image": image_file()}, data={"method": method})
        assert reply.status_code == status
    assert reply.json()["message"] == "method: expected one of restore, source"
    assert client.post("/v1/predict", files={"image": image_file()}).json()["method"] == "restore"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"methods": ("restore", "source")}, "method: expected one of methods, restore, source, got memo"),
        ({"methods": ("memo", "tent")}, "tent: takes 64 images at once"),
        ({"methods": ("memo", "nothing")}, "unknown method 'nothing'"),
        ({"methods": ("memo", "tta"), "max_views": 8}, "tta: n_views: expected at most max_views = 8"),
    ],
)
def test_methods_that_cannot_be_served_are_said_at_the_start(settings, words):
    with pytest.raises(mt.MemoError, match=words):
        build_served_model(**settings)


def test_the_operators_options_are_used_and_said(open_client):
    chosen = {"predict": "group", "early_views": None, "n_views": 6}
    client = open_client(method="restore", options={"restore": chosen})
    assert client.get("/v1/model").json()["options"]["restore"] == chosen
    reply = client.post("/v1/predict", files={"image": image_file()}).json()
    assert matches(reply, predict_directly(image_file(), "restore", **chosen)) and reply["n_views"] == 6
    assert not matches(reply, predict_directly(image_file(), "restore", early_views=None, n_views=6))


def test_options_that_do_not_go_together_are_a_mistake_of_the_client(open_client):
    client = open_client()
    for path, key in (("/v1/predict", "n_views"), ("/page/predict", "n_views")):
        fields = {"method": "memo-pce", key: "1"}
        reply = client.post(path, files={"image": image_file()}, data=fields)
        assert reply.status_code == 422 and "n_views and select must leave 2 or more" in reply.text


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("resnet26", "resnet26"),
        ("timm:resnet18.a1_in1k", "timm:resnet18.a1_in1k"),
        ("hf:microsoft/resnet-50", "hf:microsoft/resnet-50"),
        ("onnx:/home/ann/nets/mine.onnx", "onnx:mine.onnx"),
        ("onnx:{folder}/net.onnx", "onnx:net.onnx"),
        ("hf:./nets/vit", "hf:vit"),
        ("/home/ann/mine.py:build", "GroupNormNet"),
    ],
)
def test_the_model_has_the_operators_name_without_folders(model, name, tmp_path):
    (tmp_path / "net.onnx").touch()
    assert build_served_model(model=model.format(folder=tmp_path)).name == name


def test_a_subset_of_formats_is_read_whatever_the_name(server):
    for file_format in ("JPEG", "WEBP", "GIF", "BMP"):
        assert server.predict(image_file(file_format=file_format)).status == 200
    assert server.predict(image_file(file_format="TIFF")).status == 415


@pytest.mark.parametrize("method", ["tta", "restore", "memo"])
def test_a_method_that_finished_is_counted_as_such(open_client, method):
    status = "adapted" if method == "memo" else "averaged"
    client = open_client(options={"restore": {"early_views": None}})
    form = {"method": method, "explain": "true"}
    reply = client.post("/v1/predict", files={"image": image_file()}, data=form).json()
    assert reply["status"] == status and reply["adapted"] == (status == "adapted")
    assert len(reply["views"]) == reply["n_views"] > 0
    text = client.get("/metrics").text
    assert f'memo_predictions_total{{method="{method}",status="{status}"}} 1.0' in text


def test_options_of_a_request_are_those_that_methods_declare(open_client):
    client = open_client()
    schema = client.get("/openapi.json").json()["components"]["schemas"]["PredictJson"]["properties"]
    declared = METHODS["memo"].declarations
    for name in ("n_views", "lr", "seed"):
        assert schema[name]["description"].lower() == f"{declared[name].meaning.lower()}."
    assert schema["n_views"]["anyOf"][0]["minimum"] == 1 and schema["lr"]["anyOf"][0]["exclusiveMinimum"] == 0
    methods = client.get("/v1/model").json()["methods"]
    assert "lr" not in methods["restore"] and methods["restore"]["n_views"] == 12
    reply = client.post("/v1/predict", files={"image": image_file()}, data={"method": "restore", "lr": "0.1"})
    assert reply.status_code == 422 and "the method restore has no such option" in reply.json()["message"]


def test_a_model_in_bfloat16_is_served(open_client):
    client = open_client(build_classifier("bfloat16"))
    for method in ("source", "tta", "restore", "bn1", "memo"):
        reply = client.post("/v1/predict", files={"image": image_file()}, data={"method": method})
        assert reply.status_code == 200, reply.text
