"""Options that choose a model: every kind of name, in every command that takes one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import memo_tta as mt
from memo_tta.cli.model_options import SPECS, ModelChoice
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.models.libraries import LIBRARIES, USER_FILE
from memo_tta.models.zoo import ZOO, outline
from memo_tta.report.run import evaluate_command
from tests.cli.test_cli import one_line
from tests.models.test_onnx_file import linear

ONNX = ("--mean", "0.4,0.5,0.6", "--std", "0.25")
NAMES = "ant,bee,cow,dog,emu"


@pytest.fixture
def model(tmp_path, monkeypatch):
    """An ONNX file for 8 x 8 pixels and five classes, which is also the folder of its data."""
    monkeypatch.chdir(tmp_path)
    linear(tmp_path / "m.onnx", shape=("n", 3, "height", "width"))
    linear(tmp_path / "other.onnx", shape=("n", 3, "height", "width"), seed=1)
    (tmp_path / "names.txt").write_text(NAMES.replace(",", "\n"))
    rng = np.random.default_rng(0)
    for name in NAMES.split(","):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(2):
            image = Image.fromarray(rng.integers(0, 256, (12, 10, 3), dtype=np.uint8))
            image.save(tmp_path / "data" / name / f"{number}.png")
    return "onnx:m.onnx"


def test_help_names_every_kind_of_model(memo):
    forms = [library.form for library in (*LIBRARIES.values(), USER_FILE)]
    assert all(form in SPECS for form in forms)
    for command in ("predict", "evaluate", "tune", "serve"):
        _, out, _ = memo(command, "--help")
        text = " ".join(out.split())
        assert all(form.partition(":")[0] in text for form in forms), command
        for option in ("--weights", "--num-classes", "--labels", "--size", "--mean", "--std"):
            assert option in text, (command, option)
    _, out, _ = memo("models")
    assert all(form in out for form in forms)


@pytest.mark.parametrize("labels", ["names.txt", NAMES])
def test_predict_uses_what_is_given(memo, model, labels):
    words = ("--model", model, "--size", "8", *ONNX, "--labels", labels, "--method", "restore", "--json")
    code, out, _ = memo("predict", "data/ant/0.png", *words)
    classifier = mt.load(model, size=8, mean=(0.4, 0.5, 0.6), std=0.25, labels=NAMES.split(","))
    expected = mt.method("restore", classifier).predict("data/ant/0.png")
    found = json.loads(out)
    assert code == 0 and found["label"] == expected.label and found["score"] == pytest.approx(expected.score)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--size", "8"), "needs mean, std"),
        ((*ONNX,), "needs size"),
        ((*ONNX, "--size", "8", "--labels", "nothing.txt"), "labels: nothing.txt: cannot be read"),
        ((*ONNX, "--size", "8", "--labels", "a,b"), "expected 5 labels, one per class, got 2"),
        ((*ONNX, "--size", "8", "--weights", "w.pth"), "takes no weights"),
        (("--size", "8", "--mean", "123,116,103", "--std", "58,57,57"), "divide mean and std by 255"),
    ],
)
def test_mistakes_are_one_line(memo, model, words, message):
    code, _, err = memo("predict", "data/ant/0.png", "--method", "source", "--model", model, *words)
    assert code == 1 and message in one_line(err)


@pytest.mark.parametrize("words", [("--size", "big"), ("--mean", "0.5,x"), ("--num-classes", "1")])
def test_values_that_are_no_numbers_are_wrong_usage(memo, words):
    assert memo("predict", "x.png", "--model", "resnet26", *words)[0] == 2


def test_evaluate_keeps_what_the_model_was_loaded_with(memo, model):
    words = ("--model", model, "--size", "8", *ONNX, "--labels", "names.txt", "--methods", "source,restore")
    code, _, err = memo("evaluate", "data", *words, "--out", "run", "--workers", 2)
    assert code == 0, err
    assert memo("evaluate", "data", *words, "--out", "run")[0] == 0  # nothing is left to do
    for changed in (
        ("--size", "9"),
        ("--mean", "0.5"),
        ("--std", "0.3"),
        ("--labels", "ant,bee,cow,dog,elk"),
    ):
        code, _, err = memo("evaluate", "data", *words, *changed, "--out", "run")
        assert code == 1 and "run: is a run of another job" in one_line(err) and changed[0][2:] in err
    linear("m.onnx", shape=("n", 3, "height", "width"), seed=1)
    code, _, err = memo("evaluate", "data", *words, "--out", "run")
    assert code == 1 and "run: is a run of another model" in one_line(err)


def test_the_command_of_a_run_loads_the_same_model(model):
    labels = tuple(NAMES.split(","))
    choice = ModelChoice(model, size=(8, 12), mean=(0.4, 0.5, 0.6), std=0.25, labels=labels)
    job = EvaluationJob(data=("data",), model=model, **choice.arguments)
    command = evaluate_command(job, Path("run"))
    assert f"--size 8,12 --mean 0.4,0.5,0.6 --std 0.25 --labels {NAMES}" in command
    assert EvaluationJob.from_dict(job.as_dict()) == EvaluationJob.from_dict(
        json.loads(json.dumps(job.as_dict()))
    )
    assert str(choice) == f"--model {model} --size 8,12 --mean 0.4,0.5,0.6 --std 0.25 --labels {NAMES}"


def test_models_of_every_kind_are_described(memo, model):
    code, out, _ = memo("models", model, "--size", "8", *ONNX, "--labels", "names.txt")
    rows = {" ".join(line.split()) for line in out.splitlines()}
    assert code == 0
    assert {"parameters 0", "input 8 x 8 pixels, 3 channels", "labels 5: ant, bee, cow, dog, emu"} <= rows
    assert {"method restore yes", "method source yes", "method tta yes"} <= rows
    assert any(
        row.startswith("method memo no: OnnxModule: has no parameters that can be adapted") for row in rows
    )
    code, out, _ = memo("models", "resnet20-bn")
    rows = {" ".join(line.split()) for line in out.splitlines()}
    assert {"parameters 269,722", "method bn1 yes", "norm layers 19, 19 with running statistics"} <= rows
    assert any(row.startswith("method ttt no: ttt: ResNet20 has no rotation head") for row in rows)
    code, _, err = memo("models", "timn:resnet10t")
    assert code == 1 and "timm:NAME" in one_line(err)


def test_a_frozen_file_of_ones_own_shows_what_is_trainable(memo, tmp_path):
    (tmp_path / "own.py").write_text(
        "from torch import nn\nimport memo_tta as mt\n\n"
        "def build():\n    module = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3))\n"
        "    return mt.Classifier(module)\n"
    )
    _, out, _ = memo("models", f"{tmp_path}/own.py:build", "--labels", "a,b,c")
    rows = {" ".join(line.split()) for line in out.splitlines()}
    assert {"parameters 35, 15 of them trainable", "input tensors, as they are", "labels 3: a, b, c"} <= rows


@pytest.mark.parametrize("name", ZOO)
def test_an_outline_has_everything_but_weights(name):
    classifier, entry = outline(name), ZOO[name]
    assert classifier.size == entry.preprocessing["size"] and classifier.settings == entry.settings
    assert next(classifier.module.parameters()).device == torch.device("meta")


def test_serving_takes_the_same_options(memo, model, monkeypatch):
    from memo_tta.service import server

    served = []
    monkeypatch.setattr(server, "run", lambda model, _listener: served.append(model))
    Path("memo.toml").write_text(
        '[serve]\nstd = 0.25\nmean = [0.4, 0.5, 0.6]\nport = 0\nlabels = "names.txt"\n'
    )
    code, _, err = memo(
        "serve", "--model", model, "--size", "4,16", "--config", "memo.toml", "--method", "restore"
    )
    assert code == 0, err
    classifier = served[0].classifier
    assert classifier.size == (4, 16) and classifier.labels == tuple(NAMES.split(","))
    assert classifier.preprocessing.mean == (0.4, 0.5, 0.6)
    assert set(served[0].methods) == {"source", "tta", "restore", "zero"}


def test_tune_writes_the_command_that_loads_the_same_model(memo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("\n".join(f"class {index}" for index in range(10)))
    words = ("--model", "resnet26", "--labels", "names.txt", "--limit", 1, "--n-views", 1, "--workers", 1)
    code, _, err = memo("tune", "sample", *words, "--out", "memo.toml")
    assert code == 0, err
    assert (
        "memo tune sample --model resnet26 --labels 'class 0,class 1," in (tmp_path / "memo.toml").read_text()
    )


def test_bench_measures_only_methods_that_fit(memo, model, monkeypatch):
    from memo_tta.bench import own_model

    monkeypatch.setattr(own_model, "VIEWS", (2,))
    monkeypatch.setattr(own_model, "available_cores", lambda: 1)
    code, out, err = memo("bench", "--model", model, "--size", "8", *ONNX, "--json")
    assert code == 0, err
    names = [json.loads(line)["name"] for line in out.splitlines()]
    assert names == ["source, 1 thread", "restore, 1 thread", "tta, 2 views, 1 thread"]
