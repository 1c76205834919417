"""`memo bench --model`: what each method costs with a model of the user's."""

import json
from typing import Any

import pytest

from memo_tta.bench import own_model
from memo_tta.cli import main
from memo_tta.methods import Method

MODEL = """
from torch import nn
import memo_tta as mt

def build():
    convolution, head = nn.Conv2d(3, 4, 3, stride=4), nn.Linear(4, 5)
    net = nn.Sequential(convolution, nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    return mt.Classifier(net, size=70, mean=(0.5,) * 3, std=(0.5,) * 3)

def tensors():
    return mt.Classifier(nn.Linear(4, 2))
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A small network in a file; each case runs in this process, with few views."""
    (tmp_path / "own.py").write_text(MODEL)
    monkeypatch.setattr(own_model, "VIEWS", (2, 3))
    monkeypatch.setattr(own_model, "available_cores", lambda: 1)
    monkeypatch.setattr(
        own_model, "in_new_process", lambda _module, case: own_model._measure(**json.loads(case))
    )
    return tmp_path / "own.py"


def bench(*arguments: object) -> Any:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *map(str, arguments)])
    return stopped.value.code


def test_every_method_is_measured_over_views(model, tmp_path, capsys):
    assert bench("--model", f"{model}:build", "--json", "--page", tmp_path / "page.html") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [f"{name}, 1 thread" for name in ("source", "restore", "bn1")]
    names += [f"{name}, {n} views, 1 thread" for name in ("tta", "memo-fast", "memo") for n in (2, 3)]
    assert [row["name"] for row in rows] == names
    assert all(row["measured"] > 0 and row["unit"] == "ms" and "MiB" in row["detail"] for row in rows)
    page = (tmp_path / "page.html").read_text()
    assert f"What each method costs with {model}:build" in page and page.count("<img") == 2
    assert "memo-fast, 3 views, 1 thread" in page


def test_no_gate_stops_a_prediction(model, monkeypatch):
    statuses: list[str] = []
    predict = Method.predict

    def note(robust: Any, image: Any, **given: Any) -> Any:
        prediction = predict(robust, image, **given)
        if not isinstance(image, list):  # predict calls itself with a list
            statuses.append(str(prediction.status))
        return prediction

    monkeypatch.setattr(Method, "predict", note)
    list(own_model.run(f"{model}:build", {}))
    assert "gated" not in statuses and {"adapted", "averaged", "source"} <= set(statuses)


def test_a_case_runs_in_a_process_of_its_own(model, monkeypatch):
    monkeypatch.undo()
    case = {"model": f"{model}:build", "arguments": {}, "method": "source", "views": None, "threads": 1}
    found = own_model.in_new_process("memo_tta.bench.own_model", json.dumps(case))
    assert found["seconds"] > 0 and found["mib"] >= 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "resnet99"), "resnet99"),
        (("--weights", "w.pth"), "--weights needs --model"),
        (("--model", "resnet26", "--only", "views"), "use it without --model"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys):
    assert bench(*arguments) in (1, 2)
    assert message in capsys.readouterr().err


def test_tensors_cannot_be_measured(model, capsys):
    assert bench("--model", f"{model}:tensors") == 1
    assert "takes tensors, but this measures images" in capsys.readouterr().err
