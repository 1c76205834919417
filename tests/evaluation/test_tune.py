"""`memo tune`: the paper's grid, its resumption, and its file as --config of other commands."""

import os
import signal
import subprocess
import time
import tomllib

import pytest
from torch import nn

import memo_tta as mt
from memo_tta.data.corruptions import VALIDATION
from memo_tta.evaluation.driver import LeftOut
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import FailedRecord
from memo_tta.evaluation.statistics import PairedComparison
from memo_tta.evaluation.store import FILE, open_for_reading
from memo_tta.evaluation.tune import Search, Trial, as_toml, best_of, stages, summary, trial_count
from memo_tta.workers import Processes
from tests.evaluation.test_driver import command_line, files
from tests.nets import NETS
from tests.runs import record, write_run

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
    assert trial_count(NETS["batch-norm"]()) == 12 + 3 and trial_count(NETS["group-norm"]()) == 10


def test_transformers_are_searched_by_update_rule_too():
    rates = tried(nn.Sequential(NETS["transformer"](), nn.BatchNorm1d(5)))
    assert {(c["optimizer"], c.get("weight_decay")) for c in rates[0]} == {
        ("sgd", None),
        ("adamw", None),
        ("adamw", 0.1),
    }
    assert [c["prior_strength"] for c in rates[-1]] == [1, 2, 4, 8, 32, None]


def change(difference: float, low: float = -0.02, high: float = 0.02) -> PairedComparison:
    return PairedComparison(100, difference, low, high, 1.0, 0, 0)


def test_the_simplest_of_equals_wins_and_the_file_says_all():
    trials = [
        Trial("source", {}, 10, 100),
        Trial("memo", {"lr": 0.001}, 9, 100),
        Trial("memo", {"lr": 0.001, "prior_strength": None}, 8, 100, change(-0.02), change(0.004)),
        Trial("memo", {"lr": 0.001, "steps": 2}, 8, 100),
    ]
    text = as_toml(trials, 0.005, {"n_views": 8}, "memo tune x")
    assert best_of(trials, 0.005) is trials[2]
    assert tomllib.loads(text) == {"memo": {"n_views": 8, "lr": 0.001, "prior_strength": "none"}}
    assert "Error 8.00% on 100 corrupted images (95 % interval 4.11% to 15.00%)" in text
    assert (
        "On 100 clean images: +0.40 points (95 % interval -2.00 to +2.00); allowed were +0.5 points" in text
    )
    assert text.count("within the noise") == 1 and text.count("may be larger than allowed") == 1
    assert text.count("\n#  ") == 4 and "memo tune x" in text


def test_what_is_certain_is_not_called_noise():
    harmless = change(-0.01, -0.02, 0.001)
    trials = [Trial("source", {}, 10, 100), Trial("memo", {}, 5, 100, change(-0.05, -0.08, -0.02), harmless)]
    text = " ".join(summary(trials, 0.005))
    assert "noise" not in text and "larger than allowed" not in text


@pytest.mark.parametrize(
    "setting",
    [
        Trial("memo", {"lr": 0.001}, 5, 100, change(-0.05), change(0.006)),  # does harm
        Trial("memo", {"lr": 0.001}, 10, 100, change(0.0), change(0.0)),  # does not help
    ],
)
def test_the_source_is_recommended_if_no_setting_helps_without_harm(setting):
    trials = [Trial("source", {}, 10, 100), setting]
    assert best_of(trials, 0.005) is None
    text = as_toml(trials, 0.005, {}, "memo tune x")
    assert tomllib.loads(text) == {} and "use the source model as it is" in text
    allowed = best_of(trials, 0.007)
    assert (allowed is setting) == (setting.wrong < 10)


def test_a_search_that_helps_writes_the_options_it_was_given(memo, arguments, tmp_path, monkeypatch):
    def trial(_self, method, options):
        return Trial(method, options, 5 if method == "memo" else 9, 20, None, change(0.0))

    monkeypatch.setattr(Search, "_trial", trial)
    monkeypatch.setattr(Search, "_measure_harm", lambda _self, trial: trial.harm)
    code, text, _ = memo(*arguments, "--out", tmp_path / "memo.toml")
    assert code == 0 and f"use it with --config {tmp_path / 'memo.toml'}" in text.replace("\n", "")
    written = (tmp_path / "memo.toml").read_text()
    assert tomllib.loads(written) == {"memo": {"n_views": 2, "lr": 0.001}} and "--n-views 2" in written


def search(files, tmp_path, monkeypatch, wrong, harm_of) -> tuple[list[Trial], list[dict]]:
    """Run a search in which wrong(options) are the errors of 100, and harm_of(options) the harm."""
    tried: list[dict] = []

    def trial(_self, method, options):
        tried.append(dict(options))
        return Trial(method, options, 50 if method == "source" else wrong(options), 100)

    monkeypatch.setattr(Search, "_trial", trial)
    monkeypatch.setattr(Search, "_measure_harm", lambda _self, trial: change(harm_of(trial.options)))
    model = f"{files}/own.py:build"
    job = EvaluationJob(data=[str(files / "own.npz")], model=model)
    found = Search(job, tmp_path, Processes(1), lambda *_: None, 0.005).run(mt.load(model))
    return list(found), tried


def test_of_equal_settings_the_search_goes_on_from_the_first(files, tmp_path, monkeypatch):
    """A trial that equals the best so far, in learning rate or in steps, does not change the next stage."""

    def wrong(options):
        return 5 if options.get("lr") in (1e-3, 1e-4) else 9

    trials, tried = search(files, tmp_path, monkeypatch, wrong, lambda _: 0.0)
    assert {"lr": 2.5e-3} in tried and {"lr": 2.5e-4} not in tried  # around the first of the equal rates
    assert {"lr": 1e-3, "threshold": 0.5} in tried and {"lr": 1e-3, "steps": 2, "threshold": 0.5} not in tried
    best = best_of(trials, 0.005)
    assert best is not None and best.options == {"lr": 1e-3}


def test_a_setting_that_harms_clean_images_is_not_chosen(files, tmp_path, monkeypatch):
    """The largest rate has the fewest errors and does harm; the next one wins."""

    def wrong(options):
        return {1e-3: 5, 1e-4: 7}.get(options.get("lr"), 9)

    trials, _ = search(
        files, tmp_path, monkeypatch, wrong, lambda options: 0.01 if options["lr"] >= 1e-3 else 0.0
    )
    best = best_of(trials, 0.005)
    assert best is not None and best.options == {"lr": 1e-4}


def test_weaker_mixing_is_tried_if_everything_does_harm(files, tmp_path, monkeypatch):
    def wrong(options):
        return 8 if options.get("prior_strength") == 256 else 5

    def harm_of(options):
        return 0.0 if options.get("prior_strength", 16) in (256, None) else 0.02

    trials, tried = search(files, tmp_path, monkeypatch, wrong, harm_of)
    assert [options["prior_strength"] for options in tried[-3:]] == [64, 256, None]
    best = best_of(trials, 0.005)
    assert best is not None and best.options["prior_strength"] is None  # 5 errors, and no harm
    assert len(tried) == trial_count(mt.load(f"{files}/own.py:build").module)


@pytest.fixture
def arguments(files):
    data = ("tune", files / "own.npz", "--model", f"{files}/own.py:build", "--limit", 5, "--workers", 1)
    return (*data, "--n-views", 2)


def test_a_damaged_trial_is_named(memo, arguments, tmp_path):
    trial = tmp_path / "memo.toml.trials" / "source"
    trial.mkdir(parents=True)
    (trial / FILE).write_bytes(b"SQLite format 3\0" + bytes(5000))
    code, _, err = memo(*arguments, "--out", tmp_path / "memo.toml")
    (line,) = (line for line in err.splitlines() if "damaged" in line)
    assert code == 1 and f"memo: {trial / FILE}: damaged (" in line
    assert f"deleting {trial} starts over" in line and "--debug" not in line


def test_trials_that_cannot_be_stored_are_one_line(memo, arguments, tmp_path):
    (tmp_path / "memo.toml.trials").write_text("content")
    code, _, err = memo(*arguments, "--out", tmp_path / "memo.toml")
    assert code == 1 and "memo.toml.trials: is a file, expected a folder" in err and err.count("\n") == 1
    code, _, err = memo(*arguments, "--out", tmp_path)
    assert code == 1 and f"{tmp_path}: is a folder, expected a file: choose" in err and err.count("\n") == 1


def test_predictions_that_failed_are_told(memo, arguments, tmp_path, monkeypatch):
    failed = FailedRecord("own", "fog", 3, "memo", 7, "7", "too bright")

    def evaluate(job, out, *_):
        write_run(out, [record("source", 0, True), record("memo", 0, True)])
        return LeftOut([failed] if out.name == "memo lr=0.001" else [], [])

    monkeypatch.setattr("memo_tta.evaluation.tune.evaluate", evaluate)
    monkeypatch.setattr(Search, "_to_source", lambda *_: None)
    code, _, err = memo(*arguments, "--out", tmp_path / "memo.toml")
    assert code == 3 and (tmp_path / "memo.toml").exists()
    assert "memo.toml.trials: 1 predictions failed and count as wrong, the first for own fog 3 7 (" in err


def test_a_killed_search_goes_on_and_its_file_is_taken(memo, arguments, files, tmp_path):
    out = tmp_path / "memo.toml"
    command = command_line(*arguments, "--out", out)
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as run:
        while len(list(tmp_path.glob(f"memo.toml.trials/*/{FILE}"))) < 4:
            assert run.poll() is None
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGKILL)
    assert not out.exists()
    begun = {path: path.stat().st_mtime_ns for path in tmp_path.glob(f"memo.toml.trials/memo*/{FILE}")}
    code, text, err = memo(*arguments, "--out", out)
    assert code == 0 and "at most 15 trials of 20 corrupted images" in err, err
    assert "12 trials in" in text and "use the source model as it is" in text  # the weights are random
    assert sum(path.stat().st_mtime_ns == when for path, when in begun.items()) >= 1  # finished ones stay
    for folder in (tmp_path / "memo.toml.trials").iterdir():
        with open_for_reading(folder) as store:
            found = {record.corruption for record in store.records()}
        assert found == ({""} if folder.name.startswith("clean") else set(VALIDATION))
    assert (tmp_path / "memo.toml.trials" / "clean source").is_dir()
    whole = tmp_path / "whole.toml"
    assert memo(*arguments, "--out", whole)[0] == 0
    assert whole.read_text() == out.read_text()
    evaluated = ("evaluate", files / "own.npz", "--model", f"{files}/own.py:build", "--limit", 5)
    evaluated = (*evaluated, "--methods", "memo", "--config", out, "--workers", 1)
    code, _, err = memo(*evaluated, "--out", tmp_path / "run")
    assert code == 0, err
    with open_for_reading(tmp_path / "run") as store:
        options = store.metadata()["job"]["options"]
    assert options.get("memo", {}) == tomllib.loads(out.read_text()).get("memo", {})
