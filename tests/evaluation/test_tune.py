"""`memo tune`: the paper's grid, its resumption, and its file as --config of other commands."""

import os
import signal
import subprocess
import time
import tomllib

import pytest
from torch import nn

from memo_tta.data.corruptions import VALIDATION
from memo_tta.evaluation import tune
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.store import FILE, open_for_reading
from memo_tta.evaluation.tune import Trial, as_toml, best_of, stages, trial_count
from memo_tta.workers import Processes
from tests.evaluation.test_driver import command_line, files
from tests.nets import NETS

__all__ = ["files"]


def tried(module: nn.Module) -> list[list[dict]]:
    return [stage({"lr": 1e-4, "prior_strength": 16}) for stage in stages(module)]


def test_the_grid_is_the_papers():
    assert tried(NETS["batch-norm"]()) == [
        [{"lr": 1e-3}, {"lr": 1e-4}, {"lr": 1e-5}, {"lr": 1e-6}],
        [{"lr": 5e-4}, {"lr": 2.5e-4}, {"lr": 5e-5}],
        [{"steps": 2}],
        [{"threshold": 0.5}],
        [{"prior_strength": 8}, {"prior_strength": 32}],
    ]
    assert len(tried(NETS["group-norm"]())) == 4  # nothing to mix
    assert trial_count(NETS["batch-norm"]()) == 12 and trial_count(NETS["group-norm"]()) == 10


def test_transformers_are_searched_by_update_rule_too():
    rates = tried(nn.Sequential(NETS["transformer"](), nn.BatchNorm1d(5)))
    assert {(c["optimizer"], c.get("weight_decay")) for c in rates[0]} == {
        ("sgd", None),
        ("adamw", None),
        ("adamw", 0.1),
    }
    assert [c["prior_strength"] for c in rates[-1]] == [1, 2, 4, 8, 32, None]


def test_the_simplest_of_equals_wins_and_the_file_says_all():
    trials = [
        Trial("source", {}, 10, 100),
        Trial("memo", {"lr": 0.001}, 9, 100),
        Trial("memo", {"lr": 0.001, "prior_strength": None}, 8, 100),
        Trial("memo", {"lr": 0.001, "steps": 2}, 8, 100),
    ]
    text = as_toml(trials, "memo tune x")
    assert best_of(trials) is trials[2]
    assert tomllib.loads(text) == {"memo": {"lr": 0.001, "prior_strength": "none"}}
    assert "Error 8.00% on 100 validation images, 95 % interval 4.11%..15.00%" in text
    assert text.count("\n# ") == 1 + 1 + 4 and "memo tune x" in text


def test_of_equal_settings_the_search_goes_on_from_the_first(files, monkeypatch, tmp_path):
    """A trial that equals the best so far, in learning rate or in steps, does not change the next stage."""
    tried = []

    def trial(_job, _folder, method, options, _engine, _on_records):
        tried.append(dict(options))
        rate = options.get("lr")
        return Trial(method, options, 5 if rate in (1e-3, 1e-4) else 9, 100)

    monkeypatch.setattr(tune, "_trial", trial)
    job = EvaluationJob(data=[str(files / "own.npz")], model=f"{files}/own.py:build")
    trials = list(tune.tune(job, tmp_path, Processes(1), lambda *_: None))
    assert {"lr": 2.5e-3} in tried and {"lr": 2.5e-4} not in tried  # around the first of the equal rates
    assert {"lr": 1e-3, "threshold": 0.5} in tried and {"lr": 1e-3, "steps": 2, "threshold": 0.5} not in tried
    assert best_of(trials).options == {"lr": 1e-3}


@pytest.fixture
def arguments(files):
    data = ("tune", files / "own.npz", "--model", f"{files}/own.py:build", "--limit", 5, "--workers", 1)
    return (*data, "--n-views", 2)


def test_a_killed_search_goes_on_and_its_file_is_taken(memo, arguments, files, tmp_path):
    out = tmp_path / "memo.toml"
    command = command_line(*arguments, "--out", out)
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as run:
        while len(list(tmp_path.glob(f"memo.toml.trials/*/{FILE}"))) < 4:
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGKILL)
    assert not out.exists()
    begun = {path: path.stat().st_mtime_ns for path in tmp_path.glob(f"memo.toml.trials/memo*/{FILE}")}
    code, text, err = memo(*arguments, "--out", out)
    assert code == 0 and "12 trials of 20 images: at most 220 adaptations" in err
    assert "the best of 12" in text
    assert sum(path.stat().st_mtime_ns == when for path, when in begun.items()) >= 1  # finished ones stay
    trials = list((tmp_path / "memo.toml.trials").iterdir())
    assert len(trials) == 12
    with open_for_reading(trials[0]) as store:
        assert {record.corruption for record in store.records()} == set(VALIDATION)
    whole = tmp_path / "whole.toml"
    assert memo(*arguments, "--out", whole)[0] == 0
    assert whole.read_text() == out.read_text()
    evaluated = ("evaluate", files / "own.npz", "--model", f"{files}/own.py:build", "--limit", 5)
    evaluated = (*evaluated, "--methods", "memo", "--config", out, "--workers", 1)
    code, _, err = memo(*evaluated, "--out", tmp_path / "run")
    assert code == 0, err
    with open_for_reading(tmp_path / "run") as store:
        options = store.metadata()["job"]["options"]
    assert options["memo"]["lr"] == tomllib.loads(out.read_text())["memo"]["lr"]
