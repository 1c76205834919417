"""Which execution is chosen: compiled code with numba; without it another one, with the same predictions."""

import json
import subprocess
import sys

import pytest
import torch

import memo_tta as mt
from memo_tta.data.sample_images import load_sample
from memo_tta.views import execution_compiled
from memo_tta.views.execution import cpu_execution, execution_name
from tests.conftest import ROOT

POSITIONS = (3, 100, 217)
METHODS = ("memo", "tta")

WITHOUT_NUMBA = f"""
import json, sys
sys.modules["numba"] = None  # makes `import numba` fail

import memo_tta as mt
from memo_tta.data.sample_images import load_sample
from memo_tta.views.execution import execution_name

classifier, data = mt.load("resnet26"), load_sample()
predictions = {{
    name: [mt.method(name, classifier).predict(data[p].image, sample_id=p) for p in {POSITIONS}]
    for name in {METHODS}
}}
found = {{name: [(p.label, p.adapted, p.logits.tolist()) for p in ps] for name, ps in predictions.items()}}
json.dump([execution_name(), found], sys.stdout)
"""


def test_compiled_code_is_used_where_numba_is_installed():
    assert cpu_execution() is execution_compiled and execution_name() == "compiled"


@pytest.fixture(scope="module")
def without_numba():
    command = [sys.executable, "-c", WITHOUT_NUMBA]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    name, predictions = json.loads(done.stdout)
    assert name == "without numba"
    return predictions


@pytest.mark.parametrize("name", METHODS)
def test_predictions_without_numba_are_those_with_it(without_numba, name):
    robust, data = mt.method(name, mt.load("resnet26")), load_sample()
    for position, (label, adapted, logits) in zip(POSITIONS, without_numba[name], strict=True):
        expected = robust.predict(data[position].image, sample_id=position)
        assert (label, adapted) == (expected.label, expected.adapted)
        torch.testing.assert_close(torch.tensor(logits), expected.logits, rtol=0, atol=1e-4)
