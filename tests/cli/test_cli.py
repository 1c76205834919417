"""The command line: output, options, errors in one line, exit codes."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from memo_tta.class_lists import class_list
from memo_tta.cli import COMMANDS
from memo_tta.cli.method_options import all_method_options
from memo_tta.methods import METHODS
from memo_tta.models.networks.resnet26 import ResNet26
from tests.conftest import Vectors


@pytest.fixture
def image(tmp_path) -> Path:
    path = tmp_path / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    return path


def one_line(text: str) -> str:
    assert text.startswith("memo: ") and text.count("\n") == 1 and "Traceback" not in text
    return text


def test_version_help_and_unknown_command(memo):
    assert memo("--version")[:2] == (0, "memo 0.1.0\n")
    code, out, _ = memo("--help")
    assert code == 0 and "predict" in out and "Example:" in out
    assert memo("preditc")[0] == 2
    assert memo("predict")[0] == 2


@pytest.mark.parametrize("command", [*COMMANDS, "data get"])
def test_every_command_explains_itself_with_an_example(memo, command):
    code, out, _ = memo(*command.split(), "--help")
    assert code == 0 and f"Example: memo {command}" in " ".join(out.split())


def test_the_command_gives_the_golden_labels(reference, memo, tmp_path):
    vectors = Vectors(reference / "golden").arrays("resnet26_gn_real")
    paths = [tmp_path / f"{index:02d}.png" for index in range(16)]
    for path, pixels in zip(paths, vectors["images"], strict=True):
        Image.fromarray(pixels).save(path)
    model = ("--model", "resnet26", "--weights", reference / "checkpoints/resnet26_gn.npz", "--json")
    code, out, err = memo("predict", *paths, *model, "--method", "source")
    rows = [json.loads(line) for line in out.splitlines()]
    expected = vectors["logits_f64"].argmax(axis=1)
    assert code == 0 and not err
    assert [row["index"] for row in rows] == expected.tolist()
    assert [row["label"] for row in rows] == [class_list("cifar10")[index] for index in expected]
    code, out, _ = memo("predict", *paths, *model, "--option", "n_views=8")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and all(row["adapted"] for row in rows)
    assert [row["source"]["index"] for row in rows] == expected.tolist()


def test_json_object(memo, weights, image):
    code, out, _ = memo("predict", image, "--model", "resnet26", "--weights", weights, "--json", "--top", 2)
    row = json.loads(out)
    assert code == 0
    assert list(row) == [
        *("image", "label", "index", "score", "entropy", "top", "source"),
        *("adapted", "status", "reason", "marginal_entropy", "shift", "clean_shift", "seconds"),
    ]
    assert row["top"][0] == {"label": row["label"], "score": row["score"]} and len(row["top"]) == 2
    assert list(row["source"]) == ["label", "index", "score", "entropy", "top"]


def test_table_shows_before_and_after(memo, weights, image):
    code, out, _ = memo("predict", image, "--model", "resnet26", "--weights", weights, "--option", "lr=0.5")
    assert code == 0
    assert all(
        word in out for word in ("prediction", "confidence", "entropy", "time", "noise.png", "→", " s")
    )


@pytest.mark.parametrize("method", ["memo", "bn", "tent"])
@pytest.mark.filterwarnings("ignore::memo_tta.MemoWarning")
def test_one_bad_image_does_not_stop_the_others(memo, weights, image, method):
    bad = image.parent / "bad.png"
    bad.write_bytes(b"not an image")
    words = ("--model", "resnet26", "--weights", weights, "--method", method, "--json")
    code, out, err = memo("predict", image, bad, image, *words)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1 and [("error" in row) for row in rows] == [False, True, False]
    assert rows[0]["label"] == rows[2]["label"]
    assert "bad.png: not an image" in err and "1 of 3 images failed" in err
    one_line(memo("predict", bad, *words)[2])


def test_seed_option_and_config_reach_the_method(memo, weights, image, tmp_path):
    base = ("predict", image, "--model", "resnet26", "--weights", weights, "--json")

    def marginal_entropy(*words):
        return json.loads(memo(*base, *words)[1])["marginal_entropy"]

    config = tmp_path / "memo.toml"
    config.write_text("[memo]\nn_views = 3\nseed = 5\n[tta]\nn_views = 2\n")
    assert marginal_entropy("--config", config) == marginal_entropy("--option", "n_views=3", "--seed", 5)
    assert marginal_entropy("--config", config, "--option", "n_views=4") == marginal_entropy(
        "--option", "n_views=4", "--seed", 5
    )
    assert marginal_entropy("--seed", 1) != marginal_entropy("--seed", 2)
    assert marginal_entropy("--option", "micro_batch=none") == marginal_entropy()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "resnet27"), "unknown model 'resnet27': choose from resnet26"),
        (("--method", "mmo"), "unknown method 'mmo'"),
        (("--option", "n_view=3"), "did you mean 'n_views'?"),
        (("--option", "n_views=0"), "n_views: expected at least 1, got 0"),
        (("--option", "n_views=many"), "n_views: expected a whole number, got 'many'"),
        (("--weights", "none.npz"), "none.npz: no such weights file"),
        (("--config", "none.toml"), "none.toml: cannot be read"),
    ],
)
def test_wrong_names_and_options_end_in_one_line(memo, weights, image, words, message):
    base = {"--model": "resnet26", "--weights": weights}
    base.update({words[0]: words[1]})
    flat = [part for pair in base.items() for part in pair]
    code, out, err = memo("predict", image, *flat)
    assert (code, out) == (1, "") and message in one_line(err)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[memo\n", "not a TOML file"),
        ("[meno]\n", "did you mean 'memo'"),
        ("memo = 3\n", "expected a table [memo]"),
        ("[memo]\nviews = 3\n", "unknown option 'views'"),
    ],
)
def test_wrong_config_files_end_in_one_line(memo, weights, image, tmp_path, text, message):
    config = tmp_path / "memo.toml"
    config.write_text(text)
    words = ("predict", image, "--model", "resnet26", "--weights", weights, "--config", config)
    code, _, err = memo(*words)
    assert code == 1 and message in one_line(err)


def test_an_option_without_equals_sign_is_wrong_usage(memo, weights, image):
    words = ("--model", "resnet26", "--weights", weights, "--option", "n_views")
    code, _, err = memo("predict", image, *words)
    assert code == 2 and "NAME=VALUE" in err


def test_listings(memo):
    code, out, _ = memo("methods")
    assert code == 0 and all(name in out for name in ("source", "tent-bs1", "memo-pce"))
    code, out, _ = memo("methods", "bn")
    assert code == 0 and "prior_strength" in out and "256" in out
    code, out, _ = memo("models")
    assert code == 0 and all(word in out for word in ("resnet26", "366,938", "--weights"))
    assert memo("methods", "nothing")[0] == 1


def test_a_warning_is_one_line_too(memo, weights, image, monkeypatch):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        words = ("--model", "resnet26", "--weights", weights, "--method", "bn1")
        code, _, err = memo("predict", image, *words)
    assert code == 0 and "warning: prior_strength: the model has no layer" in one_line(err)


def test_an_unexpected_error_shows_its_traceback_only_on_demand(memo, weights, image, monkeypatch):
    def fail(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr(ResNet26, "forward", fail)
    words = ("predict", image, "--model", "resnet26", "--weights", weights)
    code, _, err = memo(*words)
    assert code == 1 and "RuntimeError: boom (--debug shows where)" in one_line(err)
    code, _, err = memo(*words, "--debug")
    assert code == 1 and "Traceback" in err


def test_an_interrupt_is_exit_code_130(memo, weights, image, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ResNet26, "forward", interrupt)
    code, _, err = memo("predict", image, "--model", "resnet26", "--weights", weights)
    assert code == 130 and err.strip() == "memo: interrupted"


def test_a_closed_pipe_is_no_error_message(weights, image):
    script = Path(sys.executable).with_name("memo")
    words = [script, "predict", *[image] * 3, "--model", "resnet26", "--weights", weights, "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_s_options_are_listed_with_their_meaning(memo, name):
    code, out, _ = memo("methods", name)
    words = " ".join(out.split())
    assert code == 0
    for declared in METHODS[name].declarations.values():
        assert declared.name in words and set(declared.meaning.split()) <= set(words.split())


def test_defaults_for_large_images_are_listed(memo):
    restore, tuned = (" ".join(memo("methods", name)[1].split()) for name in ("restore", "memo"))
    assert "12; 4 above 64 pixels" in restore and "tuned" not in restore.split()
    assert "augmix-mild above" in tuned and "tuned" in tuned.split()


def test_a_removed_option_names_its_replacement(memo, weights, image, tmp_path):
    model = ("predict", image, "--model", "resnet26", "--weights", weights)
    config = tmp_path / "memo.toml"
    config.write_text('[memo]\npreset = "best"\n')
    for words in (("--option", "preset=best"), ("--config", config)):
        code, _, err = memo(*model, *words)
        assert code == 1 and "the method restore" in err and err.count("\n") == 1
    evaluate = ("evaluate", "sample", "--model", "resnet26", "--out", tmp_path / "run")
    code, _, err = memo(*evaluate, "--option", "budget=fast")
    assert code == 1 and "the method memo-fast" in err


def test_an_option_without_a_method_is_set_where_it_has_an_effect():
    options = ("early_confidence=0.5", "n_views=3", "momentum=0.5")
    chosen = all_method_options(["source", "memo", "restore", "tent"], list(METHODS), None, options)
    assert chosen == {
        "memo": {"n_views": 3},
        "restore": {"early_confidence": 0.5, "n_views": 3},
        "tent": {"momentum": 0.5},
    }
    alone = all_method_options(["memo"], list(METHODS), None, ["early_confidence=0.5"])
    assert alone == {"memo": {"early_confidence": 0.5}}  # the method refuses it with a reason


def test_the_config_file_names_the_method(memo, image, tmp_path, weights):
    config = tmp_path / "memo.toml"
    config.write_text('method = "tta"\n[tta]\nn_views = 3\n')
    words = ("predict", image, "--model", "resnet26", "--weights", weights, "--config", config, "--json")
    code, out, _ = memo(*words)
    assert code == 0 and json.loads(out)["status"] == "averaged"
    code, out, _ = memo(*words, "--method", "source")  # the command line has the last word
    assert code == 0 and json.loads(out)["status"] == "source"
    run = tmp_path / "run"
    code, _, err = memo(
        *("evaluate", "sample", "--model", "resnet26", "--weights", weights, "--limit", 2),
        *("--config", config, "--workers", 1, "--out", run),
    )
    assert code == 0, err
    _, out, _ = memo("report", run)
    assert "source" in out and "tta" in out and "memo " not in out
    config.write_text("method = 3\n")
    code, _, err = memo(*words)
    assert code == 1 and "memo.toml: method: expected the name of a method, got 3" in err
