"""The examples run as they are, without a network, and notebooks are committed without outputs."""

import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

import memo_tta as mt
from memo_tta.data.sample_images import load_sample
from memo_tta.methods import METHODS
from memo_tta.service.replica import Replica
from tests.conftest import ROOT
from tests.service.live import TIMEOUT, LiveService, build_served_model, image_file, live_service

FOLDER = ROOT / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SCRIPTS = sorted(FOLDER.glob("*.py"))
PICTURES = {"your_photos": 5, "your_model": 2, "choose_a_method": 1}
TABLES = {"your_photos": 1, "your_model": 0, "choose_a_method": 3}

# Runs before the first cell of a notebook. transformers fails next to a torchvision that does not fit the
# installed torch; this package hides such a torchvision when it imports transformers.
STARTUP = """
import sys

def refuse_other_machines(event, arguments):
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    if host not in (None, "", "localhost", "127.0.0.1", "::1"):
        raise OSError(f"examples need no network, this one asks for {host}")

sys.addaudithook(refuse_other_machines)
if HIDE_TORCHVISION:
    from memo_tta.models.pretrained import import_transformers
    import_transformers()
"""


def read(notebook: Path) -> Any:
    return nbformat.read(notebook, as_version=4)


def by_name(path: Path) -> str:
    return path.stem


def test_every_example_has_its_test_here():
    assert {path.stem for path in NOTEBOOKS} == set(PICTURES) == set(TABLES)
    scripts = {path.stem for path in SCRIPTS}
    assert scripts == {"custom_augmentation", "custom_method", "service_client"}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=by_name)
def test_a_notebook_is_clean(notebook):
    found = read(notebook)
    nbformat.validate(found)
    assert nbformat.writes(found) + "\n" == notebook.read_text("utf-8"), "as nbformat writes it"
    assert set(found.metadata) == {"kernelspec", "language_info"}
    for cell in found.cells:
        assert not cell.metadata, f"{cell.id}: metadata"
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None, f"{cell.id}: clear the outputs"
    ids = [cell.id for cell in found.cells]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-z][a-z-]*", name) for name in ids)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=by_name)
def test_a_notebook_says_what_to_install_and_links_lead_to_files(notebook):
    text = "\n".join(cell.source for cell in read(notebook).cells if cell.cell_type == "markdown")
    assert text.startswith("# ") and "pip install 'memo-tta[" in text
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert targets and all((notebook.parent / target).is_file() for target in targets)


@pytest.fixture
def kernel_folders(tmp_path, monkeypatch) -> Path:
    """A temporary home for kernels; return the folder of the files that they run when they start."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    startup = tmp_path / "IPYTHONDIR/profile_default/startup"
    startup.mkdir(parents=True)
    return startup


@pytest.mark.filterwarnings("default")  # of the client's own
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=by_name)
def test_a_notebook_runs(notebook, kernel_folders, tmp_path):
    found = read(notebook)
    uses_transformers = any("transformers" in cell.source for cell in found.cells if cell.cell_type == "code")
    (kernel_folders / "00.py").write_text(f"HIDE_TORCHVISION = {uses_transformers}\n{STARTUP}")
    work = tmp_path / "work"
    work.mkdir()
    client = NotebookClient(
        found,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(work)}},
        extra_arguments=["--log-level=ERROR"],
    )
    client.execute()
    outputs = [output for cell in found.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    shown = [output.data for output in outputs if "data" in output]
    assert sum("image/png" in data for data in shown) == PICTURES[notebook.stem]
    assert sum("<table" in data.get("text/html", "") for data in shown) == TABLES[notebook.stem]
    assert not list(work.iterdir()), "it leaves nothing behind"
    text = "".join(output.text for output in outputs if output.get("name") == "stdout")
    CHECKS[notebook.stem](text)


def check_photos(text: str) -> None:
    assert "500 photos of airplane, automobile" in text
    assert re.search(r"memo +\w+ +[\d.]+ +before: \w+ [\d.]+ +\(adapted\)", text)
    assert "of 30 predictions it corrects" in text and "of 60 predictions it corrects" in text


def check_model(text: str) -> None:
    assert "model.onnx: needs mean, std" in text
    (network,) = re.findall(r"network: (\d+%) of 100", text)
    assert f"ONNX file: {network} of 100" in text
    in_training, loaded = re.findall(r"^(\d+)% of 100 other images wrong", text, flags=re.MULTILINE)
    assert in_training == loaded and int(loaded) < 80, "it learned something, and is the same when loaded"
    onnx, hf = text.split("(ResNetForImageClassification")
    assert re.findall(r"^([\w-]+) +yes$", onnx, flags=re.MULTILINE) == ["source", "tta", "restore", "zero"]
    fitting = re.findall(r"^([\w-]+) +yes$", hf, flags=re.MULTILINE)
    assert fitting == [name for name in METHODS if name != "ttt"]


def check_choice(text: str) -> None:
    assert "of 50 predictions it corrects" in text and "of 100 predictions it corrects" in text
    (name,) = re.findall(r'^method = "([\w-]+)"', text, flags=re.MULTILINE)
    assert name in METHODS and name in text.rpartition("Prediction(")[0].splitlines()[-1]


CHECKS = {"your_photos": check_photos, "your_model": check_model, "choose_a_method": check_choice}


def run_script(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(FOLDER / f"{name}.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.fixture
def load_script(monkeypatch) -> Iterator[Any]:
    """A function that imports a script; rows that it adds to METHODS are taken out again."""
    before = dict(METHODS)

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # where dataclasses look for it
        spec.loader.exec_module(module)
        return module

    yield load
    METHODS.clear()
    METHODS.update(before)


@pytest.mark.parametrize("name", ["custom_augmentation", "custom_method"])
def test_a_script_evaluates_what_it_defines(name):
    done = run_script(name, "--limit", 4)
    assert (done.returncode, done.stderr) == (0, "")
    method = {"custom_augmentation": "memo-light", "custom_method": "moved"}[name]
    assert "Prediction(" in done.stdout
    assert re.search(rf"^  {method} +[\d.]+ ", done.stdout, flags=re.MULTILINE), "a row of the table"
    assert re.search(rf": {method} changes the error of .* of 4 predictions", done.stdout)


def test_views_in_another_light_depend_on_the_generator_alone(load_script):
    light, image = load_script("custom_augmentation").light, load_sample()[3].image
    first, again, other = (light(image, 8, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.shape == (8, 3, 32, 32) and first.min() >= 0 and first.max() <= 1
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert len({view.numpy().tobytes() for view in first}) == 8


@pytest.mark.parametrize("distance", [1, 3])
def test_the_custom_method_averages_moved_images_and_leaves_the_model_alone(load_script, distance):
    load_script("custom_method")
    classifier, image = mt.load("resnet26"), load_sample()[5].image
    state = {name: value.clone() for name, value in classifier.module.state_dict().items()}
    p = mt.method("moved", classifier, distance=distance).predict(image)
    # The same by numpy, on pixels, in the other order of padding and normalising.
    padded = np.pad(image, [(distance, distance)] * 2 + [(0, 0)], mode="edge")
    starts = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    copies = [padded[distance * (1 - down) :, distance * (1 - right) :][:32, :32] for down, right in starts]
    predictions = mt.method("source", classifier).predict(copies)
    expected = np.mean([one.probabilities.numpy() for one in predictions], axis=0)
    np.testing.assert_allclose(p.probabilities, expected, atol=1e-5)
    assert p.status == "averaged" and len({copy.tobytes() for copy in copies}) == 5
    assert all(torch.equal(value, state[name]) for name, value in classifier.module.state_dict().items())
    with pytest.raises(mt.MemoError, match="distance: expected a number in"):
        mt.method("moved", classifier, distance=9)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveService]:
    with live_service(build_served_model(max_batch=4)) as service:
        yield service


@pytest.fixture
def photos(tmp_path) -> list[Path]:
    paths = [tmp_path / f"{seed}.png" for seed in range(3)]
    for seed, path in enumerate(paths):
        path.write_bytes(image_file(seed))
    return paths


def test_the_client_predicts_one_image(server, photos):
    done = run_script("service_client", "--url", server.url, photos[0])
    assert (done.returncode, done.stderr) == (0, "")
    expected = server.predict(image_file(0)).json
    line = f"{photos[0]}: {expected['label']} {expected['score']:.2f}, before {expected['source']['label']} "
    assert done.stdout.startswith(line) and "(adapted to this image)" in done.stdout


def test_the_client_predicts_a_batch_and_shows_the_error_of_one_image(server, photos):
    photos[1].write_text("no image")
    done = run_script("service_client", "--url", server.url, "--method", "source", *photos)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and [line.partition(":")[0] for line in lines] == [str(p) for p in photos]
    assert ": unsupported_type: " in lines[1]
    assert all("(the model as it is, as asked for)" in lines[position] for position in (0, 2))


def test_the_client_says_in_one_line_why_it_was_refused(server, photos, tmp_path):
    done = run_script("service_client", "--url", server.url, "--method", "magic", photos[0])
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(r"invalid: method: .*\n", done.stderr)
    gone = run_script("service_client", "--url", "http://127.0.0.1:9", photos[0])
    assert gone.returncode == 1 and "Connection refused" in gone.stderr and gone.stderr.count("\n") == 1
    missing = run_script("service_client", "--url", server.url, tmp_path / "missing.png")
    assert missing.returncode == 1 and "No such file" in missing.stderr and missing.stderr.count("\n") == 1


def test_the_client_knows_every_status(load_script):
    assert set(load_script("service_client").STATUS) == set(mt.Status)


def test_the_client_waits_as_long_as_a_busy_service_says(load_script, photos, monkeypatch, capsys):
    client, predict = load_script("service_client"), Replica.predict
    entered, may_continue = threading.Event(), threading.Event()

    def held(*arguments: Any) -> Any:
        entered.set()
        assert may_continue.wait(TIMEOUT)
        return predict(*arguments)

    with live_service(build_served_model(replicas=1, queue=0)) as service:
        monkeypatch.setattr(Replica, "predict", held)
        other = threading.Thread(target=service.predict, args=(image_file(9),))
        other.start()
        assert entered.wait(TIMEOUT)
        asked = int(service.predict(image_file()).headers["retry-after"])
        waited: list[float] = []

        def wait(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 2:
                may_continue.set()
                other.join(TIMEOUT)
                service.wait_until_idle()

        monkeypatch.setattr(client, "time", SimpleNamespace(sleep=wait))
        answer = client.predict(service.url, photos[0])
        assert waited == [asked, asked] and answer["status"] == "adapted"
        assert capsys.readouterr().err == f"busy, waiting {asked} s\n" * 2

        may_continue.clear()
        entered.clear()
        other = threading.Thread(target=service.predict, args=(image_file(9),))
        other.start()
        assert entered.wait(TIMEOUT)
        monkeypatch.setattr(client, "time", SimpleNamespace(sleep=waited.append))
        with pytest.raises(client.Refused, match=r"^busy: All replicas are busy"):
            client.predict(service.url, photos[0])
        assert len(waited) == 2 + client.ATTEMPTS - 1
        may_continue.set()
        other.join(TIMEOUT)


def test_the_client_sends_its_token(load_script, photos, monkeypatch):
    client = load_script("service_client")
    with live_service(build_served_model(replicas=1, token="secret")) as service:
        with pytest.raises(client.Refused, match=r"^unauthorized: "):
            client.predict(service.url, photos[0])
        monkeypatch.setenv("MEMO_SERVE_TOKEN", "secret")
        assert client.predict(service.url, photos[0])["status"] == "adapted"


@pytest.mark.parametrize("body", ["", "<html>", "[]", "{}", json.dumps({"error": "x"})])
def test_the_client_survives_the_answers_of_a_proxy(load_script, body):
    client = load_script("service_client")
    error = client.HTTPError("http://x", 502, "Bad Gateway", {}, None)
    error.read = lambda: body.encode()
    assert client._reason(error) == "HTTP 502"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3), ("9999", 30), ("Fri, 31 Dec 1999 23:59:59 GMT", 1), (None, 1), ("-1", 1)],
)
def test_the_client_reads_retry_after(load_script, header, seconds):
    client = load_script("service_client")
    headers = {} if header is None else {"Retry-After": header}
    assert client._seconds_to_wait(client.HTTPError("http://x", 503, "", headers, None)) == seconds
