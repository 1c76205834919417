"""`memo evaluate`: records do not depend on interruptions, workers or resumes."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from memo_tta.data.catalog import load_dataset
from memo_tta.errors import ConfigError, MemoError
from memo_tta.evaluation import worker_memory
from memo_tta.evaluation.driver import MAX_FAILURES_IN_A_ROW, RunProgress
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.store import COLUMNS, FILE, open_for_reading, open_for_writing
from memo_tta.evaluation.versions import current_versions
from memo_tta.evaluation.worker import WorkerContext
from memo_tta.methods import METHODS
from memo_tta.models.zoo import load
from memo_tta.workers import FailedItem
from tests.data.published import save_folder
from tests.runs import write_run

POINTS = 90
OWN = """
import torch
from torch import nn
import memo_tta as mt

def build():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)
    )
    return mt.Classifier(net, size=8, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list("abcde"))
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
    code, out, _ = memo(*arguments, "--order", "data", "--out", tmp_path / "run", "--workers", 1)
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
            assert run.poll() is None
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)
        assert run.wait() == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_an_interrupt_leaves_a_run_that_goes_on(memo, arguments, tmp_path):
    command = command_line(*arguments, "--workers", 1, "--out", tmp_path / "run")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        while not ((tmp_path / "run" / FILE).exists() and count(tmp_path / "run" / FILE)):
            assert run.poll() is None
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


@pytest.mark.parametrize("state", ["empty", "without tables", "with a journal"])
def test_a_run_that_was_killed_at_its_creation_is_begun_again(memo, arguments, tmp_path, state):
    path = tmp_path / "run" / FILE
    path.parent.mkdir()
    path.write_bytes(b"")
    if state == "without tables":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    if state == "with a journal":
        path.with_name(f"{FILE}-journal").write_bytes(bytes(512))
    code, _, err = memo(*arguments, "--out", tmp_path / "run", "--workers", 1)
    assert code == 0 and len(rows(tmp_path / "run")) == 5 * POINTS, err


def test_what_is_saved_of_a_damaged_run_is_completed(memo, arguments, tmp_path):
    assert memo(*arguments, "--out", tmp_path / "run", "--workers", 1)[0] == 0
    before, path = rows(tmp_path / "run"), tmp_path / "run" / FILE
    content = path.read_bytes()
    lost = content.rindex(b"tent") // 4096 * 4096
    path.write_bytes(content[:lost] + bytes(4096) + content[lost + 4096 :])
    code, _, err = memo(*arguments, "--out", tmp_path / "run")
    assert code == 1 and err.count("\n") == 1 and f"`memo report {tmp_path / 'run'} --salvage NEW`" in err
    assert memo("report", tmp_path / "run", "--salvage", tmp_path / "new")[0] == 0
    assert 0 < len(rows(tmp_path / "new")) < len(before)
    assert memo(*arguments, "--out", tmp_path / "new", "--workers", 1)[0] == 0
    assert rows(tmp_path / "new") == before


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


@pytest.mark.parametrize(
    "refused",
    [
        ("--methods", "mem"),
        ("--option", "memo.n_views=0"),
        ("--option", "viewz=3"),
        ("--corruptions", "fogg"),
        ("--model", "resnet27"),
        ("--weights", "none.npz"),
        ("seven.npz",),  # beside the other data, with two classes more than the model has
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_what_is_refused_leaves_nothing(memo, files, tmp_path, monkeypatch, refused, exists):
    if exists:
        (tmp_path / "runs" / "run").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    np.savez(files / "seven.npz", x=np.zeros((7, 8, 8, 3), np.uint8), y=np.arange(7))
    monkeypatch.chdir(files)
    words = ("evaluate", "own.npz", "--model", f"{files}/own.py:build", "--workers", 1)
    code, _, err = memo(*words, *refused, "--out", tmp_path / "runs" / "run")
    assert code == 1 and err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_nodes_that_do_not_fit_leave_nothing(memo, arguments, tmp_path, monkeypatch):
    def refuse(*_):
        raise ConfigError("node 2 has another version")

    monkeypatch.setattr("memo_tta.workers.Processes.check_nodes", refuse)
    code, _, err = memo(*arguments, "--out", tmp_path / "run")
    assert code == 1 and "node 2" in err and not (tmp_path / "run").exists()


def test_a_run_that_began_meanwhile_is_not_mixed_with_another(memo, arguments, tmp_path, monkeypatch):
    """Another process begins a run in the same folder while this one still loads its model."""

    def begin(*_):
        write_run(tmp_path / "run", [], job={"data": ["other"]})

    monkeypatch.setattr("memo_tta.workers.Processes.check_nodes", begin)
    code, _, err = memo(*arguments, "--out", tmp_path / "run")
    assert code == 1 and "another process has written to this run meanwhile: try again" in err


def test_a_resume_by_another_version_is_told_and_noted(memo, arguments, tmp_path, monkeypatch):
    run = (*arguments, "--out", tmp_path / "run", "--workers", 1)
    ours = current_versions()
    torch, numpy = ours["torch"], ours["numpy"]
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def resume(**changed):
        """Compute some records again, with other versions; return the warnings."""
        with sqlite3.connect(tmp_path / "run" / FILE) as connection:
            connection.execute("DELETE FROM records WHERE method = 'memo' AND position > 80")
        connection.close()
        monkeypatch.setattr("memo_tta.evaluation.driver.current_versions", lambda: {**ours, **changed})
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            code, _, err = memo(*run)
        assert code == 0
        return [line for line in err.splitlines() if "warning" in line]

    assert memo(*run)[0] == 0 and resume() == [] and resume(python="9.9") == []
    assert "several versions" not in memo("report", tmp_path / "run")[1]
    (warning,) = resume(torch="9.9")
    assert f"run: was computed with torch {torch}, now 9.9: its records may differ slightly" in warning
    assert resume(torch="9.9") == []  # the run says so already
    (warning,) = resume(torch="9.9", numpy="8.8")
    assert f"was computed with numpy {numpy}, now 8.8:" in warning
    shown = memo("report", tmp_path / "run")[1]
    assert f"computed by several versions: torch {torch} and 9.9; numpy {numpy} and 8.8" in shown
    monkeypatch.setattr("memo_tta.evaluation.driver.current_versions", lambda: {**ours, "torch": "10"})
    assert "warning" not in memo(*run)[2]  # nothing is left to compute


@pytest.mark.parametrize("command", ["evaluate", "tune", "corrupt", "train"])
def test_an_out_that_cannot_be_is_one_line(memo, files, tmp_path, command):
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    data = () if command == "train" else (files / "own.npz",)
    model = ("--model", f"{files}/own.py:build") if command in ("evaluate", "tune") else ()
    name = "run" if command != "tune" else "run/memo.toml"
    for out, problem in {
        "file/sub": f"{tmp_path / 'file'}: is a file, expected a folder",
        "link/sub": f"{tmp_path / 'link'}: is a link, but not to a folder",
        "x" * 300: "File name too long",
    }.items():
        code, _, err = memo(command, *data, *model, "--out", tmp_path / out / name)
        assert code == 1 and err.count("\n") == 1 and problem in err and "--debug" not in err
        assert "choose another path" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


@pytest.mark.parametrize("command", ["evaluate", "corrupt", "train"])
def test_an_out_that_is_a_file_or_a_link_is_one_line(memo, files, tmp_path, command):
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    data = () if command == "train" else (files / "own.npz",)
    model = ("--model", f"{files}/own.py:build") if command == "evaluate" else ()
    for name, kind in {"file": "is a file", "link": "is a link"}.items():
        code, _, err = memo(command, *data, *model, "--out", tmp_path / name)
        assert code == 1 and err.count("\n") == 1 and f"{tmp_path / name}: {kind}" in err


def test_images_that_are_skipped_are_told(memo, files, tmp_path):
    save_folder(tmp_path / "data", [f"{kind}/{n}.png" for kind in "abcde" for n in range(2)], 8)
    (tmp_path / "data" / "b" / "1.png").write_bytes(b"no picture")
    words = ("evaluate", tmp_path / "data", "--model", f"{files}/own.py:build", "--methods", "source")
    run = (*words, "--workers", 1, "--out", tmp_path / "run", "--skip-bad")
    for _ in range(2):  # a resume tells it again
        code, out, err = memo(*run)
        assert code == 3 and "done" in out
        assert "1 images could not be read and were left out, the first is data b/1.png (" in err
        assert "not an image" in err


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
    return mt.Classifier(Bad(), size=8, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list("abcde"))
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
        progress = RunProgress(context, POINTS, store, lambda *_: None)
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
