"""`memo evaluate`: records do not depend on interruptions, workers or resumes."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from memo_tta.data.catalog import load_dataset
from memo_tta.errors import MemoError
from memo_tta.evaluation import worker_memory
from memo_tta.evaluation.driver import MAX_FAILURES_IN_A_ROW, RunProgress
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.store import COLUMNS, FILE, open_for_reading, open_for_writing
from memo_tta.evaluation.worker import WorkerContext
from memo_tta.methods import METHODS
from memo_tta.models.zoo import load
from memo_tta.workers import FailedItem

POINTS = 90
KILLS = 10 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 3
OWN = """
import torch
from torch import nn
import memo_tta as mt

def build():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)
    )
    return mt.Classifier(net, size=8, mean=(0.5,) * 3, std=(0.5,) * 3, labels="abcde")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with a model and a data set."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(OWN)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (POINTS, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "own.npz", x=x, y=np.arange(POINTS) % 5)
    return folder


@pytest.fixture
def arguments(files):
    """Return the arguments of the command, without --out."""
    methods = ("--methods", "source,tta,memo,tent,bn", "--option", "n_views=4", "--option", "batch_size=16")
    return ("evaluate", files / "own.npz", "--model", f"{files}/own.py:build", *methods)


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "memo_tta", *map(str, arguments)]


def rows(out: Path) -> list[tuple[object, ...]]:
    """Return all records without their times."""
    with open_for_reading(out) as store:
        return [
            tuple(v for k, v in zip(COLUMNS, astuple(r), strict=True) if "seconds" not in k)
            for r in store.records()
        ]


def test_records_are_what_the_methods_say(memo, files, arguments, tmp_path):
    code, out, _ = memo(*arguments, "--out", tmp_path / "run", "--workers", 1)
    assert code == 0 and "memo report" in out
    with open_for_reading(tmp_path / "run") as store:
        records = list(store.records())
    assert len(records) == 5 * POINTS
    data, classifier = load_dataset(str(files / "own.npz")), load(f"{files}/own.py:build")
    robust = METHODS["memo"](classifier, n_views=4)
    for record in (r for r in records if r.method == "memo" and r.position % 10 == 0):
        alone = robust.predict(data[record.position].image, sample_id=record.position)
        assert (record.prediction, record.target) == (alone.index, record.position % 5)
        assert record.score == pytest.approx(alone.score, rel=1e-5) and record.seconds > 0
    tent = METHODS["tent"](classifier, batch_size=16).predict([sample.image for sample in data])
    assert [r.prediction for r in records if r.method == "tent"] == [p.index for p in tent]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_killed_again_and_again_ends_like_an_unbroken_one(memo, arguments, tmp_path, workers):
    arguments = (*arguments, "--workers", workers)
    assert memo(*arguments, "--out", tmp_path / "whole")[0] == 0
    command = command_line(*arguments, "--out", tmp_path / "broken")
    rng, kills = random.Random(workers), 0
    while True:
        with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as run:
            if kills == KILLS:
                assert run.wait() == 0
                break
            if kills > 0:  # at some moment after the first record
                store = tmp_path / "broken" / FILE
                while not (store.exists() and count(store)) and run.poll() is None:
                    time.sleep(0.02)
            time.sleep(rng.uniform(0, 0.6 if kills else 2.0))
            victims = children(run.pid) if workers > 1 and kills % 2 else []
            for victim in victims[:1]:
                os.kill(victim, signal.SIGKILL)  # a worker: the run goes on
            if victims:
                time.sleep(rng.uniform(0, 0.5))
            os.killpg(run.pid, signal.SIGKILL)
            kills += 1
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")


def count(store: Path) -> int:
    try:
        return sqlite3.connect(store).execute("SELECT COUNT(*) FROM records").fetchone()[0]
    except sqlite3.Error:
        return 0


def children(pid: int) -> list[int]:
    done = subprocess.run(["pgrep", "-P", str(pid), "-f", "spawn_main"], capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def test_a_worker_that_dies_is_replaced(memo, arguments, tmp_path):
    assert memo(*arguments, "--out", tmp_path / "whole", "--workers", 2)[0] == 0
    command = command_line(*arguments, "--workers", 2, "--out", tmp_path / "run")
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as run:
        while len(found := children(run.pid)) < 2:
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)
        assert run.wait() == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_an_interrupt_leaves_a_run_that_goes_on(memo, arguments, tmp_path):
    command = command_line(*arguments, "--workers", 1, "--out", tmp_path / "run")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        while not ((tmp_path / "run" / FILE).exists() and count(tmp_path / "run" / FILE)):
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
    assert run.returncode in (0, 130) and "Traceback" not in err
    assert memo(*arguments, "--out", tmp_path / "run")[0] == 0 and len(rows(tmp_path / "run")) == 5 * POINTS


def test_nothing_is_done_twice(memo, arguments, tmp_path):
    assert memo(*arguments, "--out", tmp_path / "run", "--workers", 1)[0] == 0
    with open_for_reading(tmp_path / "run") as store:
        before = [astuple(record) for record in store.records()]
    assert memo(*arguments, "--out", tmp_path / "run", "--workers", 1)[0] == 0
    with open_for_reading(tmp_path / "run") as store:
        assert [astuple(record) for record in store.records()] == before  # with their times


def test_corruptions_are_parts_and_a_limit_is_balanced(memo, files, tmp_path):
    model = ("--model", f"{files}/own.py:build", "--methods", "source", "--workers", 1)
    choice = ("--corruptions", "contrast,fog", "--severities", "1,5", "--limit", 10)
    assert memo("evaluate", files / "own.npz", *choice, *model, "--out", tmp_path / "run")[0] == 0
    with open_for_reading(tmp_path / "run") as store:
        records = list(store.records())
    parts = {(r.corruption, r.severity) for r in records}
    assert parts == {("contrast", 1), ("contrast", 5), ("fog", 1), ("fog", 5)}
    targets = [r.target for r in records if (r.corruption, r.severity) == ("fog", 5)]
    assert sorted(targets) == sorted(list(range(5)) * 2)


def test_a_run_of_another_job_is_refused(memo, arguments, tmp_path):
    assert memo(*arguments, "--out", tmp_path / "run", "--workers", 1)[0] == 0
    code, _, err = memo(*arguments, "--out", tmp_path / "run", "--seed", 1, "--limit", 5)
    assert code == 1 and "is a run of another job (limit was None, now 5; seed was 0, now 1)" in err


def test_what_a_worker_takes_is_said_before_the_work(memo, arguments, tmp_path):
    code, _, err = memo(*arguments, "--out", tmp_path / "run", "--workers", 1)
    assert code == 0 and "memo: a worker takes about 0.4 GiB" in err and "micro_batch" not in err


def test_what_does_not_fit_runs_in_micro_batches_and_a_resumed_run_keeps_them(
    memo, arguments, tmp_path, monkeypatch
):
    run = (*arguments, "--limit", 8, "--out", tmp_path / "run", "--workers", 1)
    few = worker_memory.PROCESS / worker_memory.GIB / worker_memory.USABLE  # nothing beside the process
    monkeypatch.setattr("memo_tta.workers.processes.machine_memory_gib", lambda: few)
    code, _, err = memo(*run)
    assert code == 0 and "micro_batch is tta 1, memo 1" in err
    with open_for_writing(tmp_path / "run") as store:
        assert store.metadata()["micro_batches"] == {"tta": 1, "memo": 1}
        assert "micro_batch" not in str(store.metadata()["job"])
    before = rows(tmp_path / "run")
    with sqlite3.connect(tmp_path / "run" / FILE) as connection:
        connection.execute("DELETE FROM records WHERE method = 'memo'")
    monkeypatch.setattr("memo_tta.workers.processes.machine_memory_gib", lambda: 64.0)
    assert memo(*run)[0] == 0
    assert rows(tmp_path / "run") == before


def test_a_run_with_other_weights_is_refused(memo, arguments, tmp_path):
    assert memo(*arguments, "--out", tmp_path / "run", "--workers", 1)[0] == 0
    with open_for_writing(tmp_path / "run") as store:
        store.save_metadata({"fingerprint": "0" * 32})
    code, _, err = memo(*arguments, "--out", tmp_path / "run")
    assert code == 1 and f"is a run of another model (fingerprint was '{'0' * 32}', now " in err


def test_a_second_writer_is_refused(memo, arguments, tmp_path):
    with open_for_writing(tmp_path / "run"):
        code, _, err = memo(*arguments, "--out", tmp_path / "run")
    assert code == 1 and "another process is writing to this run" in err


def test_a_damaged_file_says_what_can_be_saved(memo, arguments, tmp_path):
    assert memo(*arguments, "--out", tmp_path / "run", "--workers", 1)[0] == 0
    path = tmp_path / "run" / FILE
    path.write_bytes(b"\x00" * 4096 + path.read_bytes()[4096:])
    code, _, err = memo(*arguments, "--out", tmp_path / "run")
    assert code == 1 and "damaged (file is not a database)" in err and ".recover" in err


def test_bad_arguments_say_what_there_is(memo, files, arguments, tmp_path):
    out = ("--out", tmp_path / "run")
    assert "did you mean 'memo'" in memo(*arguments[:4], "--methods", "mem", *out)[2]
    assert "unknown corruption 'fogg'" in memo(*arguments, "--corruptions", "fogg", *out)[2]
    assert memo(*arguments, "--severities", "x", *out)[0] == 2
    assert memo(*arguments, "--workers", "x", *out)[0] == 2
    assert "unknown option 'viewz'" in memo(*arguments, "--option", "viewz=3", *out)[2]
    np.savez(files / "seven.npz", x=np.zeros((7, 8, 8, 3), np.uint8), y=np.arange(7))
    code, _, err = memo("evaluate", files / "seven.npz", *arguments[2:], *out)
    assert code == 1 and "seven: has 7 classes, the model 5" in err


def test_a_read_only_folder_is_one_line(memo, arguments, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = memo(*arguments, "--out", tmp_path / "file" / "run")
    assert code == 1 and err.count("\n") == 1


def test_what_is_stored_survives_and_is_stored_once(memo, arguments, tmp_path):
    assert memo(*arguments, "--out", tmp_path / "run", "--workers", 1)[0] == 0
    with open_for_writing(tmp_path / "run") as store:
        some = list(store.records())[:7]
        store.add(some)
        assert len(list(store.records())) == 5 * POINTS
        facts = store.metadata()
    assert facts["job"]["seed"] == 0 and facts["versions"]["torch"] and len(facts["fingerprint"]) == 32
    assert facts["total"] == 5 * POINTS and len(facts["labels"]) == 1


BAD = """

from torch import Tensor

class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = build_good().module

    def forward(self, x: Tensor) -> Tensor:
        if (x == 1).flatten(1).all(1).any():  # a white image
            HARM
        return self.inner(x)

build_good = build

def build():
    return mt.Classifier(Bad(), size=8, mean=(0.5,) * 3, std=(0.5,) * 3, labels="abcde")
"""
RAISE, DIE = 'raise RuntimeError("too bright")', "__import__('os')._exit(1)"


def poisoned(folder: Path, harm: str, white: slice = slice(13, 14)) -> tuple[str | Path, ...]:
    """Return the arguments to evaluate 30 images with a model that fails on white ones."""
    (folder / "bad.py").write_text(OWN + BAD.replace("HARM", harm))
    x = np.random.default_rng(0).integers(0, 255, (30, 8, 8, 3), dtype=np.uint8)
    x[white] = 255
    np.savez(folder / "bad.npz", x=x, y=np.arange(30) % 5)
    model, out = ("--model", f"{folder}/bad.py:build"), ("--out", folder / "run")
    methods = ("--methods", "source,memo", "--option", "n_views=2")
    return ("evaluate", folder / "bad.npz", *model, *methods, *out)


def failed_records(out: Path) -> set[tuple[str, int]]:
    with open_for_reading(out) as store:
        return {(row.method, row.position) for row in store.failed_records()}


@pytest.mark.parametrize(("harm", "workers"), [(RAISE, 1), (RAISE, 2), (DIE, 2)])
def test_a_point_that_fails_is_set_aside_and_told(memo, tmp_path, harm, workers):
    arguments = (*poisoned(tmp_path, harm), "--workers", workers)
    reason = "too bright" if harm is RAISE else "the worker process died"
    code, out, err = memo(*arguments)
    assert code == 3 and "done" in out and reason in err
    assert "2 predictions failed and were left out, the first for bad 13" in err
    assert failed_records(tmp_path / "run") == {("source", 13), ("memo", 13)}
    assert len(rows(tmp_path / "run")) == 58
    shown = memo("report", tmp_path / "run")[1]
    assert "2 of 60 records are missing" in shown and "set aside: failed 3 times: " in shown
    assert reason in shown
    poisoned(tmp_path, "pass")  # the problem is solved
    assert "failed" not in memo(*arguments)[2] and not failed_records(tmp_path / "run")
    assert len(rows(tmp_path / "run")) == 60


@pytest.mark.parametrize("limit", [30, 4])
def test_when_every_point_fails_the_run_does(memo, tmp_path, limit):
    arguments = poisoned(tmp_path, RAISE, white=slice(None))
    code, _, err = memo(*arguments, "--workers", 1, "--limit", limit)
    assert code == 1 and "every prediction fails; the last error was: RuntimeError: too bright" in err


def test_failures_are_in_a_row_only_if_nothing_went_well_between_them(files, tmp_path):
    context = WorkerContext(
        EvaluationJob(data=[str(files / "own.npz")], model=f"{files}/own.py:build", methods=("source",))
    )
    unit, *_ = context.split(next(context.units()))
    failed = FailedItem(unit, ValueError("no"))
    with open_for_writing(tmp_path / "run") as store:
        progress = RunProgress(context, store, lambda *_: None)
        for _ in range(3):
            for _ in range(MAX_FAILURES_IN_A_ROW - 1):
                progress.count(progress.count_failure(failed))
            progress.count(context.run(unit))  # resets the count
        for _ in range(MAX_FAILURES_IN_A_ROW - 1):
            progress.count_failure(failed)
        with pytest.raises(MemoError, match="every prediction fails; the last error was: ValueError: no"):
            progress.count_failure(failed)


def test_a_model_in_bfloat16_is_evaluated(memo, files, tmp_path):
    half = OWN.replace("return mt.Classifier(net,", "return mt.Classifier(net.bfloat16(),")
    (files / "half.py").write_text(half)
    arguments = ("evaluate", files / "own.npz", "--model", f"{files}/half.py:build", "--option", "n_views=4")
    methods = ("--methods", "source,tta,restore,bn1,tent-bs1,memo", "--limit", 4, "--workers", 1)
    code, _, err = memo(*arguments, *methods, "--out", tmp_path / "run")
    assert code == 0, err
    with open_for_reading(tmp_path / "run") as store:
        assert len(list(store.records())) == 6 * 4
        assert len(store.metadata()["fingerprint"]) == 32


def test_a_run_of_another_version_is_refused(memo, arguments, tmp_path):
    assert memo(*arguments, "--out", tmp_path / "run", "--workers", 1)[0] == 0
    with sqlite3.connect(tmp_path / "run" / FILE) as connection:
        connection.execute("ALTER TABLE records DROP COLUMN status")
    connection.close()
    for command in ((*arguments, "--out", tmp_path / "run"), ("report", tmp_path / "run")):
        code, _, err = memo(*command)
        assert code == 1 and "was written by another version" in err and "new --out" in err
