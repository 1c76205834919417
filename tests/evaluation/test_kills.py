"""Commands that are killed again and again end like unbroken ones, and leave no temporary file."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from memo_tta.evaluation.store import FILE, LOCK
from memo_tta.training.loop import STATE
from tests.conftest import times
from tests.data.published import save_folder
from tests.data.test_generate import digests
from tests.evaluation.test_driver import OWN, POINTS, children, command_line, rows
from tests.training.test_training import KILLED, images

START_SECONDS = 2.0  # about the time until a command works
EARLY = 0.1  # the share of kills in that time
CREATION_SECONDS = 0.03  # after the first change of a file


@dataclass(frozen=True)
class Command:
    """A command that writes to a folder, and what to compare of it."""

    words: Callable[[Path], Sequence[object]]  # of the folder
    content: Callable[[Path], object]  # of the folder of a finished command
    span: float  # seconds of work in which it is killed


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model and data for all commands."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "own.py").write_text(OWN)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (POINTS, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "own.npz", x=x, y=np.arange(POINTS) % 5)
    x = rng.integers(0, 256, (600, 16, 16, 3), dtype=np.uint8)
    np.savez(folder / "larger.npz", x=x, y=np.arange(600) % 7)
    names = [f"{kind}/{position}.png" for kind in ("cat", "dog") for position in range(9)]
    save_folder(folder / "pictures", names, 48)
    x, y = images()
    np.savez(folder / "train.npz", x=x, y=y)
    return folder


def evaluate(data: Path, workers: int) -> Command:
    methods = ("--methods", "source,tta,memo,tent,bn", "--option", "n_views=4", "--option", "batch_size=16")
    words = ("evaluate", data / "own.npz", "--model", f"{data}/own.py:build", *methods, "--workers", workers)

    def content(folder: Path) -> object:
        assert names(folder / "run") == [LOCK, FILE]
        return rows(folder / "run")

    return Command(lambda folder: command_line(*words, "--out", folder / "run"), content, 0.6)


def tune(data: Path, workers: int) -> Command:
    words = ("tune", data / "own.npz", "--model", f"{data}/own.py:build", "--limit", 5, "--n-views", 2)

    def content(folder: Path) -> object:
        assert names(folder) == ["memo.toml", "memo.toml.trials"]
        trials = sorted((folder / "memo.toml.trials").iterdir())
        assert all(names(trial) == [LOCK, FILE] for trial in trials)
        return (folder / "memo.toml").read_text(), {trial.name: rows(trial) for trial in trials}

    return Command(
        lambda folder: command_line(*words, "--workers", workers, "--out", folder / "memo.toml"), content, 2.0
    )


def corrupt(data: Path, workers: int, name: str) -> Command:
    words = ("corrupt", data / name, "--corruptions", "zoom_blur,motion_blur,snow", "--workers", workers)
    return Command(lambda folder: command_line(*words, "--out", folder / "c"), digests, 1.0)


def train(data: Path, _: int) -> Command:
    def content(folder: Path) -> object:
        assert names(folder) == [STATE]
        with safe_open(folder / STATE, framework="np") as file:
            tensors = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
            return file.metadata(), tensors

    words = (sys.executable, "-c", KILLED, data / "train.npz")
    return Command(lambda folder: (*words, folder, "cct2"), content, 0.5)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


SERIES = {  # command, workers, kills in a short and in a long test
    "evaluate-1": (evaluate, 1, 2, 40),
    "evaluate-2": (evaluate, 2, 2, 30),
    "tune-1": (tune, 1, 1, 15),
    "tune-2": (tune, 2, 0, 10),
    "arrays-1": (lambda data, workers: corrupt(data, workers, "larger.npz"), 1, 1, 20),
    "arrays-2": (lambda data, workers: corrupt(data, workers, "larger.npz"), 2, 1, 20),
    "pictures-1": (lambda data, workers: corrupt(data, workers, "pictures"), 1, 0, 20),
    "pictures-2": (lambda data, workers: corrupt(data, workers, "pictures"), 2, 1, 20),
    "train": (train, 1, 2, 25),
}


@pytest.mark.parametrize("name", [name for name, (_, _, *kills) in SERIES.items() if times(*kills)])
def test_a_killed_command_ends_like_an_unbroken_one(data, tmp_path, name):
    build, workers, short, full = SERIES[name]
    command, kills, rng = build(data, workers), times(short, full), random.Random(name)
    whole = tmp_path / "whole"
    whole.mkdir()
    subprocess.run([*map(str, command.words(whole))], check=True, capture_output=True)
    wanted = command.content(whole)
    number = 0
    while kills > 0:
        folder = tmp_path / f"{number}"
        folder.mkdir()
        groups: list[int] = []
        while kills > 0 and (killed := run_and_kill(command, folder, rng, groups)):
            kills -= killed
        subprocess.run([*map(str, command.words(folder))], check=True, capture_output=True)
        wait_for_end(groups)
        assert command.content(folder) == wanted
        assert not list(folder.rglob("*.part"))
        number += 1


def run_and_kill(command: Command, folder: Path, rng: random.Random, groups: list[int]) -> int:
    """Run a command and kill it, or a worker first, at random moments of its work; return the kills."""
    before, is_early, kills = snapshot(folder), rng.random() < EARLY, 0
    words, errors = [*map(str, command.words(folder))], folder.with_suffix(".stderr")
    with (
        errors.open("w") as stderr,
        subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=stderr) as run,
    ):
        groups.append(run.pid)
        while not is_early and snapshot(folder) == before and run.poll() is None:
            time.sleep(0.005)
        span = rng.choice((CREATION_SECONDS, command.span, command.span))
        time.sleep(rng.uniform(0, START_SECONDS if is_early else span))
        victim = rng.choice(("worker", "driver", "all"))
        if victim == "worker" and (workers := children(run.pid)):  # the command goes on
            kills += kill(os.kill, rng.choice(workers))
            time.sleep(rng.uniform(0, command.span))
        if run.poll() is None:
            kills += kill(os.kill, run.pid) if victim == "driver" else kill(os.killpg, run.pid)
    assert kills or run.returncode == 0, errors.read_text()
    return kills


def kill(function: Callable[[int, int], None], pid: int) -> int:
    """Send SIGKILL; return 1, or 0 if nothing was left to be killed."""
    try:
        function(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def wait_for_end(groups: Sequence[int]) -> None:
    """Wait until the workers of killed commands have ended."""
    deadline = time.monotonic() + 60
    for group in groups:
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("a worker outlives its command by a minute")


def snapshot(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of every file."""
    found: dict[Path, tuple[int, int]] = {}
    for path in folder.rglob("*"):
        try:
            found[path] = (path.stat().st_size, path.stat().st_mtime_ns)
        except FileNotFoundError:  # a temporary file that was moved meanwhile
            continue
    return found
