"""Models of grey images and of images that are not square, over HTTP and on the page."""

import pytest
import torch
from torch import nn

import memo_tta as mt
from tests.service.live import build_served_model, image_file


def network(channels: int, size: int | tuple[int, int]) -> mt.Classifier:
    torch.manual_seed(0)
    layers = (nn.Conv2d(channels, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module = nn.Sequential(*layers, nn.Linear(8, 3))
    return mt.Classifier(module, size=size, mean=0.5, std=0.5, channels=channels, labels=["a", "b", "c"])


@pytest.mark.parametrize(("channels", "size"), [(1, 32), (3, (24, 40)), (1, (40, 24))])
def test_a_model_of_any_shape_is_served(open_client, channels, size):
    classifier = network(channels, size)
    client = open_client(classifier)
    expected = list(size) if isinstance(size, tuple) else size
    assert client.get("/v1/model").json()["input_size"] == expected
    data = image_file(size=60)
    for method in ("source", "tta", "restore", "memo"):
        fields = {"method": method, "explain": "true"}
        reply = client.post("/v1/predict", files={"image": data}, data=fields)
        assert reply.status_code == 200 and reply.json()["label"] in "abc", reply.text
    for path in ("/page/preview", "/page/predict"):
        fields = {"corruption": "fog", "severity": "3"}
        reply = client.post(path, files={"image": data}, data=fields, headers={"HX-Request": "true"})
        assert reply.status_code == 200 and "data:image/png" in reply.text


def test_models_of_other_channels_say_what_to_do():
    with pytest.raises(mt.MemoError, match="takes images of 4 channels, but the service takes grey and RGB"):
        build_served_model(network(4, 32))
