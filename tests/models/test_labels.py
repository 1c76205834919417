"""Class names in every form: list, tuple, dict by index, file, model."""

from pathlib import Path

import numpy as np
import pytest

import memo_tta as mt
from memo_tta.errors import ConfigError
from memo_tta.models.labels import read_labels

NAMES = ("crane (bird)", "crane (machine)", "maillot, tank suit", "日本猫", "owl")


@pytest.mark.parametrize(
    "labels",
    [
        list(NAMES),
        NAMES,
        np.array(NAMES),
        dict(enumerate(NAMES)),
        dict(reversed(list(enumerate(NAMES)))),
        {str(index): name for index, name in enumerate(NAMES)},  # from JSON
        (name for name in NAMES),
    ],
)
def test_every_form_means_the_same(labels):
    assert read_labels(labels) == NAMES


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_a_file_has_one_name_per_line(tmp_path, ending, encoding, last):
    path = tmp_path / "names.txt"
    path.write_bytes((ending.join(NAMES) + last).encode(encoding))
    assert read_labels(path) == read_labels(str(path)) == NAMES


def test_ten_names_by_text_index_are_sorted_by_number():
    """As text, 10 would come before 2."""
    names = {str(index): f"class {index}" for index in reversed(range(12))}
    assert read_labels(names) == tuple(f"class {index}" for index in range(12))


def test_a_prediction_has_the_name_of_its_index():
    classifier = mt.load("resnet26", labels={index: f"class {index}" for index in range(10)})
    point = mt.load_dataset("sample")[0]
    prediction = mt.method("source", classifier).predict(point.image)
    assert prediction.label == f"class {prediction.index}"


def file(tmp_path: Path, content: bytes) -> Path:
    (tmp_path / "names.txt").write_bytes(content)
    return tmp_path / "names.txt"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({0: "a", 2: "c", 5: "f"}, r"one name for each index in 0\.\.5, got no name for 1, 3, 4"),
        (dict.fromkeys(range(3, 20), "x"), r"0\.\.19, got no name for 0, 1, 2"),
        (dict.fromkeys(range(0, 40, 2), "x"), r"no name for 1, 3, 5, 7, 9 \.\.\."),
        ({1: "a", "0": "b", "1": "c"}, r"got the indices \['0', 1, '1'\]"),
        ({-1: "z", 0: "a"}, r"got the indices \[-1, 0\]"),
        ({"cat": 0, "dog": 1}, "expected a dict from index to name, got the key 'cat'"),
        ({"a", "b"}, "expected a list of names, a dict by index or a file, got set"),
        (7, "got int"),
        ("names.txt", r"names\.txt: cannot be read \(No such file or directory\): give a list of names"),
    ],
)
def test_labels_that_are_none(labels, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^labels: .*{message}"):
        read_labels(labels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n\nb\n", "one name per line, but line 2 is empty"),
        (b"", "line 1 is empty"),
        (b"\xff\xfe", "expected a UTF-8 text file"),
        (b"a\0b", "expected a UTF-8 text file"),
    ],
)
def test_files_that_are_no_labels(content, message, tmp_path):
    with pytest.raises(ConfigError, match=rf"labels: .*names\.txt: .*{message}"):
        read_labels(file(tmp_path, content))
