"""Data sets of the hub: columns, the library's cache without a network, and a hub that does not answer."""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing

import datasets
import numpy as np
import pytest

from memo_tta.data.catalog import load_dataset
from memo_tta.data.formats.hub_rows import parse_spec
from memo_tta.errors import ConfigError, DataError, InputError, MissingExtra
from tests.conftest import ROOT
from tests.data import own

pytestmark = pytest.mark.usefixtures("data")

LOAD = """
import sys, time
from memo_tta.data.catalog import load_dataset
from memo_tta.errors import MemoError
began = time.monotonic()
try:
    dataset = load_dataset(sys.argv[1])
    print(dataset.name, len(dataset), list(dataset.labels), dataset[3].image.shape)
except MemoError as error:
    print(error)
print(time.monotonic() - began)
"""


def load_in_child(spec, **environment):
    """Load a data set in a fresh process with this environment; return what it prints and the seconds."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOAD, spec],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    text, seconds = done.stdout.splitlines()
    return text, float(seconds)


@pytest.fixture
def cached(tmp_path):
    """Return the library's folder after `me/tiny` was loaded from the hub."""
    home, source = tmp_path / "home", tmp_path / "tiny"
    source.mkdir()
    own.hub_rows().to_parquet(source / "test-00000-of-00001.parquet")
    builder = datasets.load_dataset_builder(str(source), cache_dir=str(tmp_path / "built"))
    builder.download_and_prepare()
    shutil.copytree(builder.cache_dir, home / "datasets/me___tiny/default/0.0.0/0123")
    for path in (home / "datasets").rglob("dataset_info.json"):
        text = path.read_text().replace(f'"config_name": "{builder.config.name}"', '"config_name": "default"')
        path.write_text(text)
    return home


def test_what_is_in_the_cache_needs_no_network(cached):
    text, _ = load_in_child("hfds:me/tiny", HF_HOME=str(cached), HF_HUB_OFFLINE="1")
    assert text == f"tiny {own.COUNT} {own.LABELS} (40, 40, 3)"
    text, _ = load_in_child("hfds:me/tiny:test:image:label", HF_HOME=str(cached), HF_HUB_OFFLINE="1")
    assert text.startswith(f"tiny {own.COUNT} ")


def test_what_is_not_in_the_cache_is_one_line_without_a_network(tmp_path):
    text, seconds = load_in_child("hfds:me/other", HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert text.startswith("hfds:me/other: cannot be loaded (") and "me/other" in text and seconds < 5


def test_a_hub_that_refuses_or_does_not_answer_is_one_line_soon(tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        addresses = ["http://127.0.0.1:1", f"http://127.0.0.1:{silent.getsockname()[1]}"]
        for address in addresses:
            environment = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0"}
            text, seconds = load_in_child("hfds:me/tiny", **environment, no_proxy="*")
            assert text.startswith("hfds:me/tiny: the hub cannot be reached (") and seconds < 5
            assert text.endswith("or name a folder that `save_to_disk` wrote") and "HF_HUB_OFFLINE=1" in text
    assert not (tmp_path / "home").exists()


def test_a_missing_library_says_how_to_get_it(tmp_path, monkeypatch):
    spec = own.as_saved(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"datasets is not installed: pip install 'memo-tta\[data\]'"):
        load_dataset(spec)


def test_ambiguous_columns_are_listed_and_can_be_named(tmp_path):
    rows = own.hub_rows(thumb_image=datasets.Image(), coarse=datasets.ClassLabel(names=list("vwxyz")))
    rows.save_to_disk(tmp_path / "many")
    message = (
        "found images in image, thumb_image and labels in label, coarse among its columns image, label, "
        "thumb_image, coarse: name them, like hfds:.*many::image:label$"
    )
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path / "many"))
    chosen = load_dataset(f"hfds:{tmp_path / 'many'}::thumb_image:coarse")
    assert list(chosen.labels) == list("vwxyz") and chosen.targets.tolist() == own.TARGETS.tolist()
    np.testing.assert_array_equal(chosen[1].image, own.PICTURES[1])


def test_a_named_label_column_may_hold_texts(tmp_path):
    rows = own.hub_rows().remove_columns("label").add_column("kind", list("zyxwv") * 2)
    rows.save_to_disk(tmp_path / "texts")
    with pytest.raises(DataError, match="and labels in none among its columns image, kind: name them, like"):
        load_dataset(str(tmp_path / "texts"))
    dataset = load_dataset(f"hfds:{tmp_path / 'texts'}::image:kind")
    assert list(dataset.labels) == list("vwxyz") and dataset.targets.tolist() == [4, 3, 2, 1, 0] * 2


def test_a_folder_of_parquet_files_is_read_by_the_library(tmp_path, monkeypatch, capsys):
    (tmp_path / "tiny").mkdir()
    own.hub_rows().to_parquet(tmp_path / "tiny/test-00000-of-00001.parquet")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    capsys.readouterr()
    dataset = load_dataset(f"hfds:{tmp_path / 'tiny'}")
    assert capsys.readouterr() == ("", "")  # no bars where there is no terminal
    assert dataset.name == "tiny" and dataset.targets.tolist() == own.TARGETS.tolist()


def test_a_folder_that_is_saved_again_is_read_again(tmp_path):
    own.hub_rows().save_to_disk(tmp_path / "saved")
    assert len(load_dataset(str(tmp_path / "saved"))) == own.COUNT
    shutil.rmtree(tmp_path / "saved")
    own.hub_rows().select([3]).save_to_disk(tmp_path / "saved")
    dataset = load_dataset(str(tmp_path / "saved"))
    assert dataset.targets.tolist() == [3] and len(dataset) == 1
    np.testing.assert_array_equal(dataset[0].image, own.PICTURES[3])


def test_a_row_without_an_image_names_itself(tmp_path):
    rows = own.hub_rows()
    rows = rows.map(lambda row, i: row if i else {**row, "image": None}, with_indices=True)
    rows.save_to_disk(tmp_path / "gap")
    dataset = load_dataset(str(tmp_path / "gap"))
    assert dataset[1].image.shape == (40, 40, 3)
    with pytest.raises(InputError, match=r"hfds:.*gap: image 0: the row has none"):
        _ = dataset[0]


@pytest.mark.parametrize("text", ["hfds:name", "hfds:owner/name:test", "hfds:a/b::image:label"])
def test_a_spec_is_read_and_written_alike(text):
    assert str(parse_spec(text)) == text


@pytest.mark.parametrize("text", ["hfds:", "hfds::test", "hfds:a:b:c", "hfds:a:b:c:d:e"])
def test_an_odd_spec_lists_the_forms(text):
    with pytest.raises(ConfigError, match="expected hfds:NAME, hfds:NAME:SPLIT or hfds:NAME:SPLIT:IMAGE_"):
        parse_spec(text)
