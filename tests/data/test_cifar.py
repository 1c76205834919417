"""CIFAR-10 from small archives in both formats."""

import io
import json
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from memo_tta.data.catalog import load_dataset
from memo_tta.data.fetch.cifar_archive import ARRAYS, read_archive, unpack
from memo_tta.errors import DataError, UnknownName

ROWS = 7  # images per batch
RNG = np.random.default_rng(0)
BATCHES = {
    name: (RNG.integers(0, 256, (ROWS, 32, 32, 3), dtype=np.uint8), RNG.integers(0, 10, ROWS).tolist())
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
}


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def official(path: Path, **changes: bytes) -> Path:
    """Write an archive like the official one: pickles with one row per image, channel by channel."""
    files = {"batches.meta": b"", "readme.html": b""}
    for name, (images, labels) in BATCHES.items():
        rows = images.transpose(0, 3, 1, 2).reshape(ROWS, -1)
        content = {b"data": rows, b"labels": labels, b"filenames": [b"a.png"] * ROWS, b"batch_label": b"1"}
        files[name] = pickle.dumps(content, protocol=3)  # the first with bytes, like Python 2's
    return write_tar(path, {f"cifar-10-batches-py/{k}": v for k, v in {**files, **changes}.items()})


def npm(path: Path, **changes: bytes) -> Path:
    """Write an archive like the npm package: one PNG per batch, one image per row, labels as JSON."""
    files = {}
    for name, (images, _) in BATCHES.items():
        png = io.BytesIO()
        Image.fromarray(images.reshape(ROWS, 1024, 3)).save(png, "PNG")
        files[f"{name}.png"] = png.getvalue()
    train = [label for name, (_, labels) in BATCHES.items() if name != "test_batch" for label in labels]
    files["train_lables.json"] = json.dumps(train).encode()
    files["test_lables.json"] = json.dumps(BATCHES["test_batch"][1]).encode()
    return write_tar(path, {f"package/{k}": v for k, v in {**files, **changes}.items()})


def test_both_archives_give_the_same_bytes_and_the_images_that_went_in(tmp_path):
    arrays = [read_archive(make(tmp_path / "a.tgz")) for make in (official, npm)]
    for name in ARRAYS:
        first, second = (a[name] for a in arrays)
        assert first.dtype == second.dtype == np.uint8 and first.tobytes() == second.tobytes()
    np.testing.assert_array_equal(arrays[0]["test_x"], BATCHES["test_batch"][0])
    np.testing.assert_array_equal(arrays[0]["train_x"][:ROWS], BATCHES["data_batch_1"][0])
    assert arrays[0]["test_y"].tolist() == BATCHES["test_batch"][1]


def test_unpacked_files_are_mapped_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMO_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError, match=r"cifar10: not found in .*: get it with `memo data get cifar10`"):
        load_dataset("cifar10")
    unpack(official(tmp_path / "a.tgz"), tmp_path / "data" / "cifar10")
    test = load_dataset("cifar10")
    assert isinstance(test.images, np.memmap) and len(test) == ROWS and test.labels[3] == "cat"
    np.testing.assert_array_equal(test.images, BATCHES["test_batch"][0])
    assert len(load_dataset("cifar10-train")) == 5 * ROWS
    with pytest.raises(UnknownName, match="did you mean 'cifar10'"):
        load_dataset("cifar100")


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_a_payload_in_a_batch_does_not_run(tmp_path):
    evil = pickle.dumps({b"data": Payload(tmp_path / "ran"), b"labels": []}, protocol=3)
    with pytest.raises(DataError, match=r"posix\.mkdir, which is not data"):
        read_archive(official(tmp_path / "a.tgz", data_batch_2=evil))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("make", [official, npm])
def test_a_truncated_archive_leaves_nothing_behind(tmp_path, make):
    path = make(tmp_path / "a.tgz")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match="not an archive of CIFAR-10, or damaged"):
        unpack(path, tmp_path / "out" / "cifar10")
    assert not list(tmp_path.glob("out/*")) and not list(tmp_path.glob("out/.*"))


def test_archives_that_are_something_else_say_so(tmp_path):
    with pytest.raises(DataError, match="it contains no data_batch_1"):
        read_archive(write_tar(tmp_path / "other.tgz", {"notes.txt": b"hello"}))
    (tmp_path / "text.tgz").write_text("hello")
    with pytest.raises(DataError, match="damaged"):
        read_archive(tmp_path / "text.tgz")
    with pytest.raises(DataError, match="no such file"):
        read_archive(tmp_path / "missing.tgz")
    few = json.dumps([1, 2]).encode()
    with pytest.raises(DataError, match=r"test_lables\.json: 7 images but 2 labels"):
        read_archive(npm(tmp_path / "few.tgz", **{"test_lables.json": few}))
    odd = json.dumps([10] * ROWS).encode()
    with pytest.raises(DataError, match=r"test_lables\.json: a label is 10, expected 0\.\.9"):
        read_archive(npm(tmp_path / "odd.tgz", **{"test_lables.json": odd}))


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path, monkeypatch):
    saved = np.save
    monkeypatch.setattr(np, "save", lambda path, a: saved(path, a) if "train_x" in str(path) else full_disk())

    def full_disk():
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        unpack(npm(tmp_path / "a.tgz"), tmp_path / "out" / "cifar10")
    assert not list(tmp_path.glob("out/*")) and not list(tmp_path.glob("out/.*"))
