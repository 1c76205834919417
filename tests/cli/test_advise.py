"""`memo advise`: its file, its words, and what it refuses."""

import json
import re
import tomllib
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

QUICK = ("--model", "resnet26", "--limit", 20, "--time-limit", "2s", "--severities", 5, "--workers", 1)


def write_images(folder: Path, **counts: int) -> Path:
    """Write noise images, this many of each class."""
    rng = np.random.default_rng(0)
    for label, count in counts.items():
        (folder / label).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{index}.png")
    return folder


def test_the_advice_is_a_sentence_a_table_and_a_file_that_other_commands_take(memo, tmp_path):
    out = tmp_path / "memo.toml"
    page = tmp_path / "advice.html"
    code, text, err = memo("advise", "sample", *QUICK, "--out", out, "--html", page)
    assert code == 0, err
    assert "6 candidates (source, tta n_views=16, restore, memo-fast, memo n_views=16, memo)" in err
    assert "on up to 20 images, clean and shifted: about 2 seconds at most" in err
    lines = text.splitlines()
    assert lines[0].split()[:2] == ["method", "shifted"] and any(line.startswith("restore") for line in lines)
    (advice,) = [line for line in lines if line.startswith("Use ")]
    config = tomllib.loads(out.read_text())
    assert [config["method"]] == re.findall(r"^Use (\S+?)[,:]", advice)
    assert f"# {advice}" in out.read_text() and "# Made by: memo advise sample" in out.read_text()
    shown = unescape(page.read_text())
    assert advice in shown and f"memo serve --model resnet26 --config {out}" in shown
    assert "memo advise sample --model resnet26 --severities 5 --limit 20 --harm 0.5 --seed 0" in shown

    image = tmp_path / "image.png"
    Image.fromarray(np.full((32, 32, 3), 99, np.uint8)).save(image)
    code, shown, err = memo("predict", image, "--model", "resnet26", "--config", out, "--json")
    assert code == 0, err
    expected = {"source": {"source"}, "restore": {"averaged", "gated"}}.get(config["method"])
    assert expected is None or json.loads(shown)["status"] in expected

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("records.sqlite")}
    code, again, _ = memo("advise", "sample", *QUICK, "--out", out)  # uses the records that are there
    assert code == 0 and [line for line in again.splitlines() if line.startswith("Use ")] == [advice]
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("records.sqlite")}


def test_your_own_shifted_images_replace_the_corruptions(memo, tmp_path):
    shifted = write_images(tmp_path / "dark", cat=8, dog=8)
    code, text, err = memo(
        "advise", write_images(tmp_path / "day", cat=12, dog=12), *QUICK[:6], "--workers", 1,
        *("--shifted", shifted, "--out", tmp_path / "memo.toml"),
    )  # fmt: skip
    assert code == 0, err
    runs = {path.parent.name for path in (tmp_path / "memo.toml.race").rglob("records.sqlite")}
    assert "round-1-0" in runs and "Use " in text
    rounds = json.loads((tmp_path / "memo.toml.race" / "race.json").read_text())
    assert rounds["race"]["job"]["data"] == [str(tmp_path / "day"), str(shifted)]


@pytest.mark.parametrize(
    "counts, words, problem",
    [
        ({"cat": 25}, (), "all images are of one class (cat), expected at least two"),
        ({"cat": 9, "dog": 10}, (), "has 19 images, expected at least 20"),
        ({"cat": 12, "dog": 12}, ("--budget", "100"), "--budget: 100 has no unit: write 100ms or 100s"),
        ({"cat": 12, "dog": 12}, ("--time-limit", "soon"), "--time-limit: expected a time like 100ms"),
        ({"cat": 12, "dog": 12}, ("--shifted", "elsewhere"), "unknown data set 'elsewhere'"),
        ({"cat": 12, "dog": 12}, ("--severities", "6"), "severity: expected 1..5, got 6"),
        ({"cat": 12, "dog": 12}, ("--budget", "0.01ms"), "budget: the source alone takes"),
    ],
)
def test_bad_input_is_one_clear_line(memo, tmp_path, counts, words, problem):
    data = write_images(tmp_path / "data", **counts)
    code, out, err = memo(
        "advise", data, "--model", "resnet26", *words, "--workers", 1, "--out", tmp_path / "memo.toml"
    )
    last = err.splitlines()[-1]
    assert code == 1 and not out and last.startswith("memo: ") and problem in last
    assert not (tmp_path / "memo.toml").exists()


def test_images_without_labels_and_corrupted_ones_are_refused(memo, tmp_path):
    write_images(tmp_path, unsorted=25)
    (tmp_path / "memo.toml").parent.mkdir(exist_ok=True)
    common = ("--model", "resnet26", "--out", tmp_path / "memo.toml")
    code, _, err = memo("advise", tmp_path / "unsorted", *common)
    assert code == 1 and "found none but 25 images: put those of each class in a folder named after it" in err
    code, _, err = memo("advise", "sample+fog:3", *common)
    assert code == 1 and "expected clean images, got corrupted ones" in err
    data = write_images(tmp_path / "a" / "photos", cat=12, dog=12)
    code, _, err = memo(
        "advise", data, *common, "--shifted", write_images(tmp_path / "b" / "photos", cat=5, dog=5)
    )
    assert code == 1 and "expected another name than that of the clean images, photos: rename one" in err
