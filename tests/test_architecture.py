"""The walks in docs/architecture.md are what the code does: same functions, same order, each file once."""

import json
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
HOP = re.compile(r"^\d+\. `([\w/]+\.py):([\w.<>]+)`", re.MULTILINE)

# Records the first call of every function of the package, in this thread and in those started later.
TRACED = """
import json, sys, threading
from pathlib import Path
import memo_tta

root, calls = str(Path(memo_tta.__file__).parent) + "/", {}

def record(frame, event, _argument):
    if event == "call" and frame.f_code.co_filename.startswith(root):
        calls.setdefault((frame.f_code.co_filename[len(root):], frame.f_code.co_qualname), len(calls))

def traced(action):
    calls.clear()
    threading.setprofile(record)
    sys.setprofile(record)
    try:
        action()
    except SystemExit as stopped:
        assert not stopped.code, stopped.code
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    Path("calls.json").write_text(json.dumps([key for key, _ in sorted(calls.items(), key=lambda c: c[1])]))

import numpy as np
from PIL import Image
Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)).save("photo.png")
"""
PREDICT = """
from memo_tta.cli import main
traced(lambda: main(["predict", "photo.png", "--model", "resnet26", "--option", "n_views=4"]))
"""
EVALUATE = """
from memo_tta.cli import main
words = "evaluate sample --model resnet26 --methods source,memo --limit 2 --workers 1 --out run"
traced(lambda: main(words.split()))
"""
REQUEST = """
import time
from starlette.testclient import TestClient
from memo_tta.service.app import build_app
from memo_tta.service.model import ServedModel
from memo_tta.service.settings import Settings

def predict():
    reply = client.post("/v1/predict", files={"image": Path("photo.png").read_bytes()})
    assert reply.status_code == 200

threading.setprofile(record)  # for the replica's thread, which starts before the request
app = build_app(ServedModel.load(Settings(replicas=1)))
with TestClient(app, base_url="http://localhost") as client:
    while client.get("/readyz").status_code != 200:
        time.sleep(0.05)
    traced(predict)
"""
WALKS = {"### One image": PREDICT, "### One evaluated point": EVALUATE, "### One request": REQUEST}


def hops(title: str) -> list[tuple[str, str]]:
    (section,) = re.findall(rf"^{title}.*?(?=^##)", PAGE, flags=re.MULTILINE | re.DOTALL)
    return HOP.findall(section)


@pytest.mark.parametrize("title", WALKS)
def test_no_walk_returns_to_a_file(title):
    files = [file for file, _ in hops(title)]
    assert len(files) >= 10 and len(set(files)) == len(files)


@pytest.mark.parametrize("title", WALKS)
def test_calls_come_in_the_order_of_the_walk(title, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRACED + WALKS[title]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    calls = [tuple(call) for call in json.loads((tmp_path / "calls.json").read_text())]
    walk = hops(title)
    assert not [hop for hop in walk if hop not in calls]
    assert walk == sorted(walk, key=calls.index)
