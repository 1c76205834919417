"""Compiled code: when it is loaded, where it is cached, and that threads change nothing."""

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import numba.core.caching
import numba.core.config
import numpy as np
import pytest
import torch

from memo_tta.seeding import sample_rng
from memo_tta.views import AugMix, augmix_kernels
from memo_tta.views.augmix_plan import OPERATIONS
from memo_tta.views.compiler import kernel
from memo_tta.views.threads import parallel_for
from tests.conftest import ROOT

FOLDER = Path(augmix_kernels.__file__).parent


@pytest.fixture
def threads():
    """Set the number of torch's threads, and restore it."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("size", [32, 96])
def test_views_do_not_depend_on_the_number_of_threads(threads, size):
    image = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    results = []
    for number in (1, 2, 3):
        threads(number)
        results.append(AugMix(size)(image, 13, sample_rng(0, 0)))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize(("number", "n"), [(1, 5), (2, 1), (2, 33), (4, 3), (3, 100)])
def test_every_view_is_made_once_by_no_more_threads_than_torch_has(threads, number, n):
    threads(number)
    made, workers = [], set()

    def work(views: slice) -> None:
        made.extend(range(n)[views])
        workers.add(threading.get_ident())

    parallel_for(work, n)
    assert sorted(made) == list(range(n)) and len(workers) <= number


def test_a_failure_in_any_thread_is_raised(threads):
    threads(2)

    failed = threading.Event()

    def work(views: slice) -> None:
        if threading.current_thread() is threading.main_thread():
            assert failed.wait(60)
        else:
            failed.set()
            raise ValueError("no views")

    with pytest.raises(ValueError, match="no views"):
        parallel_for(work, 100)


FORKING = """
import multiprocessing, numpy as np, torch
from memo_tta.views import AugMix
torch.set_num_threads(2)
image = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)

def views(_=None):
    return AugMix(32)(image, 8, np.random.default_rng(0)).numpy()

before = views()
with multiprocessing.get_context("fork").Pool(1) as pool:
    assert (pool.map_async(views, [0]).get(60)[0] == before).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_makes_views_too():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], check=True, cwd=ROOT)


def test_numba_waits_for_the_first_view():
    code = (
        "import sys, memo_tta.cli; from memo_tta import AugMix; AugMix(32); sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def double(x):
    return 2 * x


def test_code_that_cannot_be_kept_is_compiled_anyway(monkeypatch):
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit("int64(int64)", cache=True)(double)
    assert kernel("int64(int64)")(double)(21) == 42


def test_a_full_disk_is_no_obstacle(monkeypatch, tmp_path):
    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(tmp_path))
    assert kernel("int64(int64)")(double)(21) == 42
    assert any(tmp_path.rglob("*.nbi"))
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", no_room)
    assert kernel("float64(float64)")(double)(1.5) == 3


@pytest.mark.parametrize("name", OPERATIONS)
def test_compiled_code_numbers_operations_as_plans_do(name):
    assert getattr(augmix_kernels, name.upper()) == OPERATIONS.index(name)


@pytest.mark.parametrize(
    "path", [FOLDER / "augmix_kernels.py", FOLDER / "crop_kernels.py"], ids=lambda path: path.name
)
def test_what_is_kept_depends_on_one_file_alone(path):
    """A cached kernel is compiled again when its own file changes, and no other."""
    ours = [
        (node.module, [alias.name for alias in node.names])
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memo_tta")
    ]
    assert ours == [("memo_tta.views.compiler", ["kernel"])]
