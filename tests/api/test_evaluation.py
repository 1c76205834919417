"""`mt.evaluate` computes the records of `memo evaluate`, and refuses what it cannot store or repeat."""

import io
import sys
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError, DataError, InputError, UnknownName
from memo_tta.evaluation.records import Record
from memo_tta.evaluation.store import open_for_reading

METHODS = ("source", "restore", "memo", "tent")
OPTIONS = {"memo": {"n_views": 4}, "tent": {"batch_size": 8}}
LIMIT = 8
SEEN_TIMES = {"seconds", "views_seconds", "predict_seconds"}


@pytest.fixture(scope="module")
def resnet26() -> mt.Classifier:
    return mt.load("resnet26")


def small(**changes: Any) -> mt.Classifier:
    """Return a classifier of random weights, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 3))
    return mt.Classifier(net, **{"size": 8, "mean": 0.5, "std": 0.5, "labels": list("abc"), **changes})


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "own.npz"
    x = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(12) % 3)
    return path


def rows(folder: Path) -> list[tuple[object, ...]]:
    """Return the records of a run without the times, in the order of the run."""
    kept = [index for index, field in enumerate(fields(Record)) if field.name not in SEEN_TIMES]
    with open_for_reading(folder) as store:
        return [tuple(astuple(record)[index] for index in kept) for record in store.records()]


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        ({}, ()),
        (
            {"corruptions": ["fog", "gaussian_noise"], "severities": 5},
            ("--corruptions", "fog,gaussian_noise", "--severities", "5"),
        ),
    ],
    ids=["clean", "corrupted"],
)
def test_records_are_those_of_the_command(shift, words, resnet26, memo, tmp_path):
    command = ("evaluate", "sample", "--model", "resnet26", "--methods", ",".join(METHODS), "--limit", LIMIT)
    options = ("--option", "memo.n_views=4", "--option", "tent.batch_size=8", "--seed", 3, "--workers", 1)
    code, _, err = memo(*command, *options, *words, "--out", tmp_path / "command")
    assert code == 0, err
    expected = rows(tmp_path / "command")
    parts = 2 if shift else 1
    assert len(expected) == parts * LIMIT * len(METHODS)
    for name, classifier in (("object", resnet26), ("name", "resnet26")):
        out = tmp_path / name
        mt.evaluate(
            "sample", classifier, METHODS, **shift, limit=LIMIT, options=OPTIONS, seed=3, out=out, quiet=True
        )
        assert rows(out) == expected


def test_the_command_continues_a_run_of_a_named_model(memo, tmp_path):
    out = tmp_path / "run"
    results = mt.evaluate("sample", "resnet26", "source", limit=8, out=out, quiet=True)
    words = "evaluate sample --model resnet26 --methods source --limit 8 --out"
    code, *_ = memo(*words.split(), out)
    assert code == 0
    code, printed, _ = memo("report", out)
    assert code == 0 and str(results.table()).splitlines()[2] in printed


def test_several_workers_compute_the_same(tmp_path):
    for n in (1, 2):
        mt.evaluate(
            "sample",
            "resnet26",
            "memo",
            options={"memo": {"n_views": 2}},
            limit=16,
            workers=n,
            out=tmp_path / str(n),
            quiet=True,
        )
    assert rows(tmp_path / "1") == rows(tmp_path / "2")


def test_without_a_folder_the_records_live_as_long_as_the_results(pixels):
    results = mt.evaluate(pixels, small(), "source", quiet=True)
    folder = results.folder
    assert len(rows(folder)) == 12
    del results
    assert not folder.exists()


def test_a_failed_call_leaves_no_folder_behind(pixels, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UnknownName):
        mt.evaluate(pixels, small(), "sauce", quiet=True)
    assert not list(tmp_path.iterdir())


def test_the_classifier_is_as_before(pixels):
    classifier = small()
    before = {key: value.clone() for key, value in classifier.module.state_dict().items()}
    classifier.module.train()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)  # more than there are free cores
    try:
        mt.evaluate(pixels, classifier, ["memo"], options={"memo": {"n_views": 2}}, quiet=True)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert classifier.module.training
    assert all(torch.equal(value, before[key]) for key, value in classifier.module.state_dict().items())


def test_a_run_resumes_with_the_same_classifier_only(pixels, tmp_path):
    out = tmp_path / "run"
    mt.evaluate(pixels, small(), "source", out=out, quiet=True)
    before = rows(out)
    mt.evaluate([str(pixels)], small(), ["source"], out=str(out), quiet=True)
    assert rows(out) == before
    for changed in ({"mean": 0.4}, {"resize": 9}, {"labels": list("cab")}, {"settings": {"lr": 1.0}}):
        name = next(iter(changed))
        with pytest.raises(ConfigError, match=f"another classifier.*{name} was .* now .*use another out"):
            mt.evaluate(pixels, small(**changed), "source", out=out, quiet=True)
    other = small()
    with torch.no_grad():
        next(other.module.parameters()).add_(1)
    with pytest.raises(ConfigError, match=r"another model.*fingerprint"):
        mt.evaluate(pixels, other, "source", out=out, quiet=True)
    with pytest.raises(ConfigError, match="another job"):
        mt.evaluate(pixels, small(), "source", out=out, limit=3, quiet=True)
    assert rows(out) == before


def test_a_function_in_the_settings_is_known_by_its_name(pixels, tmp_path):
    def views(image: object, n: int, rng: object) -> None: ...

    for _ in range(2):
        mt.evaluate(pixels, small(settings={"augment": views}), "source", out=tmp_path / "run", quiet=True)
    assert "views" in (tmp_path / "run/classifier.json").read_text()


def test_images_that_cannot_be_read_are_skipped_on_request(tmp_path):
    for name in "abc":
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (9, 9)).save(tmp_path / "photos" / name / "1.png")
    (tmp_path / "photos/b/2.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"b/2\.png"):
        mt.evaluate(tmp_path / "photos", small(), "source", quiet=True)
    results = mt.evaluate(tmp_path / "photos", small(), "source", skip_bad=True, quiet=True)
    assert [point.sample for point in results.skipped] == ["b/2.png"]
    assert "; 1 skipped)" in repr(results) and not results.failed


def test_predictions_that_fail_are_listed(pixels):
    poor = np.load(pixels)["x"][5].transpose(2, 0, 1) / 255

    def fails_at_one(batch: np.ndarray) -> np.ndarray:
        if any(np.allclose(image * 0.5 + 0.5, poor, atol=1e-4) for image in batch):
            raise ValueError("this one")
        return batch.reshape(len(batch), -1)[:, :3]

    function = mt.Classifier.from_function(fails_at_one, size=8, mean=0.5, std=0.5, labels=list("abc"))
    results = mt.evaluate(pixels, function, "source", quiet=True)
    assert [(row.position, row.method) for row in results.failed] == [(5, "source")]
    assert "this one" in results.failed[0].reason and "; 1 failed)" in repr(results)


def test_progress_is_on_stderr_and_can_be_turned_off(pixels, capsys):
    mt.evaluate(pixels, small(), "source")
    out, err = capsys.readouterr()
    assert "own: 12 images of 3 classes" in err and not out
    mt.evaluate(pixels, small(), "source", quiet=True)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_is_a_bar(pixels, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    mt.evaluate(pixels, small(), "source")
    assert "12/12" in terminal.getvalue()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data": []}, DataError, "data: expected a name, a path or a list of them, got none"),
        ({"data": 3}, DataError, "data: expected a name, a path or a list of them, got int"),
        ({"data": "nothing"}, UnknownName, "unknown data set 'nothing'"),
        ({"classifier": nn.Linear(2, 2)}, ConfigError, "got Linear: wrap a module in mt.Classifier"),
        ({"classifier": "resnet27"}, UnknownName, "unknown model 'resnet27'"),
        ({"methods": []}, ConfigError, "methods: expected at least one, got none"),
        ({"methods": "sauce"}, UnknownName, "unknown method 'sauce'.*did you mean 'source'"),
        ({"corruptions": "fogg"}, UnknownName, "unknown corruption 'fogg'"),
        ({"severities": 6}, ConfigError, "severity: expected 1..5, got 6"),
        ({"limit": 0}, ConfigError, "limit: expected a whole number of at least 1, got 0"),
        ({"seed": -1}, ConfigError, "seed: expected a whole number of at least 0, got -1"),
        ({"workers": 0}, ConfigError, "workers: expected a whole number of at least 1, got 0"),
        ({"workers": 2}, ConfigError, "workers: expected 1 for a classifier that is loaded already"),
        (
            {"options": {"n_views": 8}},
            ConfigError,
            r"options: expected a dict by method, such as .*8",
        ),
        ({"options": {"memo": {"n_views": 8}}}, UnknownName, "unknown method in options 'memo'"),
        ({"options": {"source": {"n_views": 8}}}, UnknownName, "unknown option 'n_views'"),
        ({"options": {"source": {"seed": len}}}, ConfigError, "options: source.seed: expected a number"),
    ],
)
def test_wrong_arguments_say_what_was_expected(arguments, error, message, pixels):
    with pytest.raises(error, match=message):
        mt.evaluate(
            **{"data": pixels, "classifier": small(), "methods": "source", "quiet": True, **arguments}
        )


def test_a_data_set_that_is_loaded_already_is_refused(pixels):
    with pytest.raises(DataError, match="got the data set 'own': give what you gave load_dataset"):
        mt.evaluate(mt.load_dataset(str(pixels)), small(), quiet=True)  # pyright: ignore[reportArgumentType]


def test_numbers_of_numpy_are_numbers(pixels):
    results = mt.evaluate(
        pixels, small(), "source", corruptions="contrast", severities=np.arange(1, 3),  # pyright: ignore[reportArgumentType]
        limit=np.int64(3), quiet=True,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    assert len(results.to_pandas()) == 6
