"""`mt.advise` runs the race of `memo advise`, and shows, saves and uses what it recommends."""

import re
import tomllib
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.api.advice import AdvisedMethod
from memo_tta.errors import ConfigError, DataError

QUICK = {"limit": 20, "time_limit": "2s", "severities": 5, "quiet": True}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("race") / "records"


@pytest.fixture(scope="module")
def advice(out: Path) -> AdvisedMethod:
    return mt.advise("sample", "resnet26", budget="10s", out=out, **QUICK)


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "own.npz"
    x = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(24) % 2)
    return path


def small(mean: float = 0.5) -> mt.Classifier:
    """Return a linear classifier, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    return mt.Classifier(net, size=8, mean=mean, std=0.5, labels=["a", "b"])


def modified(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.sqlite")}


def test_the_same_call_continues_and_so_does_the_command(advice, out, memo, tmp_path):
    before = modified(out)
    again = mt.advise("sample", "resnet26", budget=10, out=out, **QUICK)
    assert repr(again) == repr(advice) and before and modified(out) == before

    out.rename(tmp_path / "memo.toml.race")
    code, text, err = memo(
        *("advise", "sample", "--model", "resnet26", "--limit", 20, "--severities", 5, "--budget", "10s"),
        *("--workers", 1, "--out", tmp_path / "memo.toml"),
    )
    (tmp_path / "memo.toml.race").rename(out)
    assert code == 0, err
    printed = [line.rstrip() for line in text.splitlines()]
    assert printed[:-1] == repr(advice).splitlines() and modified(out) == before
    again.save(tmp_path / "saved.toml")
    assert (tmp_path / "saved.toml").read_text() == (tmp_path / "memo.toml").read_text()


def test_the_advice_names_a_method_that_can_be_created(advice):
    classifier = mt.load("resnet26")
    method, expected = advice.create(classifier), mt.method(advice.method, classifier, **advice.options)
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(method(x), expected(x))
    assert f"Use {advice.method}" in repr(advice)


def test_a_notebook_and_the_page_say_what_is_printed(advice, tmp_path):
    advice.report(tmp_path / "advice.html")
    page, cell = (unescape(text) for text in ((tmp_path / "advice.html").read_text(), advice._repr_html_()))
    sentences = [line for line in repr(advice).splitlines() if line.endswith(".")]
    assert len(sentences) >= 2 and all(line in page and line in cell for line in sentences)
    for line in repr(advice).splitlines()[1 : -len(sentences)]:
        name = re.split(r"\s\s+", line)[0]
        assert f"<th>{name}</th>" in page and f"<th>{name}</th>" in cell
    assert f'memo_tta.method("{advice.method}", classifier' in page
    assert "memo advise sample --model resnet26" in page and "--budget 10000ms" in page


def test_what_is_saved_is_the_method_and_its_options(advice, tmp_path):
    advice.save(tmp_path / "memo.toml")
    config = tomllib.loads((tmp_path / "memo.toml").read_text())
    assert config == {"method": advice.method} | ({advice.method: advice.options} if advice.options else {})


def test_without_a_folder_no_records_are_left(pixels, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    advice = mt.advise(pixels, small(), **QUICK)
    assert advice.method == "source"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        ({"budget": "100"}, ConfigError, "budget: 100 has no unit"),
        ({"budget": 0}, ConfigError, "budget: expected a time like"),
        ({"time_limit": None}, ConfigError, "time_limit: expected a time like"),
        ({"harm": -1}, ConfigError, "harm: expected percentage points"),
        ({"harm": "low"}, ConfigError, "harm: expected percentage points"),
        ({"limit": 0}, ConfigError, "limit: expected a whole number of at least 1, got 0"),
        ({"severities": 6}, ConfigError, "severity: expected 1..5, got 6"),
        ({"shifted": 3}, DataError, "shifted: expected a name or a path, got int"),
        ({"data": ["sample"]}, DataError, "data: expected a name or a path, got list"),
        ({"classifier": 3}, ConfigError, "classifier: expected a Classifier or the name of a model"),
    ],
)
def test_bad_arguments_are_named(arguments, error, problem):
    with pytest.raises(error, match=re.escape(problem)):
        mt.advise(**{"data": "sample", "classifier": "resnet26", "quiet": True, **arguments})


def test_a_loaded_classifier_has_one_worker_and_its_own_records(pixels, tmp_path):
    with pytest.raises(ConfigError, match="workers: expected 1 for a classifier that is loaded already"):
        mt.advise(pixels, small(), workers=2, **QUICK)
    mt.advise(pixels, small(), out=tmp_path / "race", **QUICK)
    with pytest.raises(ConfigError, match="another classifier"):
        mt.advise(pixels, small(mean=0.1), out=tmp_path / "race", **QUICK)
