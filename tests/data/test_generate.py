"""`memo corrupt`: the published layouts, and identical files after interruptions and with any workers."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from memo_tta.data.catalog import load_dataset, load_parts
from memo_tta.data.corruptions import corrupt
from memo_tta.report.run import open_run
from memo_tta.seeding import sample_rng
from tests.data import own
from tests.data.published import images, save_folder

POINTS = 600  # more than two batches per severity


@pytest.fixture(scope="module")
def npz(tmp_path_factory):
    path = tmp_path_factory.mktemp("npz") / "own.npz"
    rng = np.random.default_rng(0)
    np.savez(path, x=rng.integers(0, 256, (POINTS, 16, 16, 3), dtype=np.uint8), y=np.arange(POINTS) % 7)
    return path


@pytest.fixture
def folder(tmp_path):
    save_folder(
        tmp_path / "own", [f"{kind}/{position}.png" for kind in ("cat", "dog") for position in range(9)], 48
    )
    return tmp_path / "own"


def digests(folder):
    """Return the SHA-256 of every file by name, hidden ones included."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_arrays_become_cifar10cs_layout(memo, npz, tmp_path):
    code, out, _ = memo("corrupt", npz, "--out", tmp_path / "c", "--corruptions", "contrast,shot_noise")
    assert code == 0 and "2 corruptions at five severity levels" in out
    x, y = (np.load(npz)[name] for name in "xy")
    noisy = np.load(tmp_path / "c/shot_noise.npy")
    assert noisy.shape == (5 * POINTS, 16, 16, 3) and noisy.dtype == np.uint8
    assert np.load(tmp_path / "c/labels.npy").tolist() == np.tile(y, 5).tolist()
    for level, position in ((1, 0), (3, 421), (5, POINTS - 1)):
        expected = corrupt(x[position], "shot_noise", level, sample_rng(0, f"shot_noise {level} {position}"))
        np.testing.assert_array_equal(noisy[(level - 1) * POINTS + position], expected)
    part = load_dataset(f"{tmp_path / 'c'}+contrast:5")
    assert (part.name, len(part), list(part.labels)) == ("own-c", POINTS, [str(i) for i in range(7)])
    here = {p.corruption for p in load_parts(str(tmp_path / "c"))}
    assert here == {"contrast", "shot_noise"}  # what was made, not what could have been
    on_the_fly = load_dataset(f"{npz}+contrast:5")
    np.testing.assert_array_equal(part[17].image, on_the_fly[17].image)


def test_folders_become_imagenet_cs_layout(memo, folder, tmp_path):
    assert memo("corrupt", folder, "--out", tmp_path / "c", "--corruptions", "fog", "--workers", 1)[0] == 0
    names = [name for name in digests(tmp_path / "c") if name.endswith("JPEG")]
    assert len(names) == 5 * 18 and "fog/3/dog/8.JPEG" in names
    part = load_dataset(f"{tmp_path / 'c'}+fog:3")
    assert (part.name, part.labels, part.severity, len(part)) == ("c", ["cat", "dog"], 3, 18)
    assert [(p.corruption, p.severity) for p in load_parts(str(tmp_path / "c"))] == [
        ("fog", level) for level in range(1, 6)
    ]
    jpeg = io.BytesIO()
    Image.fromarray(load_dataset(f"{folder}+fog:3")[5].image).save(jpeg, "JPEG", quality=85)
    np.testing.assert_array_equal(part[5].image, np.asarray(Image.open(jpeg)))
    with Image.open(tmp_path / "c/fog/1/cat/0.JPEG") as image:
        assert image.format == "JPEG" and image.size == (48, 48)


@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_the_number_of_workers_and_another_run_change_nothing(memo, kind, request, tmp_path):
    data = request.getfixturevalue(kind)
    for workers in (1, 2):
        words = ("corrupt", data, "--out", tmp_path / str(workers), "--corruptions", "snow,glass_blur")
        assert memo(*words, "--workers", workers)[0] == 0
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    one = next(path for path in (tmp_path / "1").rglob("*") if path.suffix in (".npy", ".JPEG"))
    before, written = digests(tmp_path / "1"), one.stat().st_mtime_ns
    one.unlink()
    assert memo("corrupt", data, "--out", tmp_path / "1", "--corruptions", "snow,glass_blur")[0] == 0
    assert digests(tmp_path / "1") == before and one.stat().st_mtime_ns != written


@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_a_killed_run_leaves_whole_files_only_and_is_finished_by_the_next(memo, kind, request, tmp_path):
    data, out = request.getfixturevalue(kind), tmp_path / "c"
    words = ["corrupt", str(data), "--out", str(out), "--corruptions", "zoom_blur,motion_blur,snow"]
    with subprocess.Popen([sys.executable, "-m", "memo_tta", *words], start_new_session=True) as run:
        while not list(out.rglob("*.part")):  # in the middle of a file
            time.sleep(0.001)
            assert run.poll() is None
        os.killpg(run.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        while True:  # workers may outlive the command by a moment
            os.killpg(run.pid, 0)
            time.sleep(0.01)
    for path in out.rglob("*.npy"):
        assert len(np.load(path)) == 5 * POINTS
    for path in out.rglob("*.JPEG"):
        Image.open(path).load()
    assert memo(*words)[0] == 0
    assert memo(*words[:2], "--out", tmp_path / "whole", *words[4:])[0] == 0
    assert digests(out) == digests(tmp_path / "whole")


def test_large_arrays_are_as_large_as_their_copies(memo, tmp_path):
    np.savez(tmp_path / "large.npz", x=images(3, side=240), y=np.arange(3))
    words = ("corrupt", tmp_path / "large.npz", "--out", tmp_path / "c", "--corruptions", "contrast")
    assert memo(*words, "--workers", 1)[0] == 0
    clean, part = (
        load_dataset(f"{tmp_path / 'large.npz'}+contrast:2"),
        load_dataset(f"{tmp_path / 'c'}+contrast:2"),
    )
    assert part[2].image.shape == (224, 224, 3)
    np.testing.assert_array_equal(part[2].image, clean[2].image)


def test_a_few_corrupted_images_are_reported_by_their_folder_and_without_mce(memo, tmp_path):
    save_folder(
        tmp_path / "few", [f"{wnid}/{n}.png" for wnid in ("n01440764", "n01443537") for n in "123"], 48
    )
    out = tmp_path / "few-c"
    assert memo("corrupt", tmp_path / "few", "--out", out, "--corruptions", "fog", "--workers", 1)[0] == 0
    (tmp_path / "own.py").write_text(
        own.MODEL.replace('list("abcde")', '["goldfish", "x", "tench", "y", "z"]')
    )
    run = tmp_path / "run"
    words = (
        "evaluate",
        f"{out}+fog",
        "--model",
        f"{tmp_path / 'own.py'}:build",
        "--methods",
        "source",
        "--out",
        run,
    )
    code, _, err = memo(*words, "--workers", 1)
    assert (
        code == 0 and "few-c: 6 images of 2 classes (tench 3, goldfish 3), matched with the model's by" in err
    )
    code, text, _ = memo("report", run)
    assert code == 0 and "few-c" in text and "mCE" not in text and "imagenet-c" not in text
    assert open_run(run).blocks[0].dataset == "few-c"


def test_imagenet_c_has_its_mce_beside_clean_images_and_own_copies(memo, data, tmp_path):
    names = [f"{wnid}/{n}.png" for wnid in ("n01440764", "n01443537") for n in "12"]
    for folder in (tmp_path / "val", data / "imagenet-c/fog/1", tmp_path / "mine/fog/1"):
        save_folder(folder, names)
    (tmp_path / "own.py").write_text(
        own.MODEL.replace('list("abcde")', '["goldfish", "x", "tench", "y", "z"]')
    )
    words = ("--model", f"{tmp_path / 'own.py'}:build", "--methods", "source", "--out", tmp_path / "run")
    specs = (tmp_path / "val", "imagenet-c+fog:1", f"{tmp_path / 'mine'}+fog:1")
    code, _, err = memo("evaluate", *specs, *words, "--workers", 1)
    assert code == 0 and err.count(" images of 2 classes (tench 2, goldfish 2)") == 3, err
    mce = {block.dataset: rows[0].mce for block, rows in open_run(tmp_path / "run").tables}
    assert mce["imagenet-c"] is not None and mce["val"] is None and mce["mine"] is None


def test_a_folder_made_otherwise_is_refused(memo, npz, tmp_path):
    words = ("corrupt", npz, "--out", tmp_path / "c", "--corruptions", "contrast")
    assert memo(*words)[0] == 0
    code, _, err = memo(*words, "--seed", 5)
    assert code == 1 and "was made with other settings (seed was 0): use another --out" in err
    facts = json.loads((tmp_path / "c/corrupt.json").read_text())
    assert facts["frost"] in ("photographs", "procedural") and facts["points"] == POINTS


def test_bad_images_stop_the_run_unless_they_may_be_skipped(memo, folder, tmp_path):
    (folder / "cat/3.png").write_bytes(b"no picture")
    words = ("corrupt", folder, "--out", tmp_path / "c", "--corruptions", "contrast", "--workers", 1)
    code, _, err = memo(*words)
    assert code == 1 and "cat/3.png: not an image" in err and "--skip-bad leaves such images out" in err
    code, out, err = memo(*words, "--skip-bad")
    assert code == 3 and "1 images skipped" in out and err.count("cat/3.png") == 1
    assert len(list((tmp_path / "c").rglob("*.JPEG"))) == 5 * 17


def test_an_image_that_is_too_small_names_itself(memo, folder, tmp_path):
    Image.fromarray(images(1, 5)[0]).save(folder / "dog/tiny.png")
    code, _, err = memo("corrupt", folder, "--out", tmp_path / "c", "--corruptions", "fog", "--workers", 1)
    assert code == 1 and "dog/tiny.png: expected at least 8 pixels a side, got 5 x 5" in err


def test_what_cannot_be_corrupted_says_why(memo, folder, tmp_path):
    out = ("--out", tmp_path / "c")
    assert "did you mean 'fog'" in memo("corrupt", folder, *out, "--corruptions", "fogg")[2]
    assert "is already corrupted" in memo("corrupt", "sample+fog:1", *out)[2]
    Image.fromarray(images(1)[0]).save(folder / "cat/0.bmp")
    err = memo("corrupt", folder, *out, "--corruptions", "fog")[2]
    assert "2 images would become cat/0.JPEG: rename all but one" in err


def test_a_full_disk_leaves_whole_files_only(memo, npz, tmp_path, monkeypatch):
    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("memo_tta.files.os.fsync", full_disk)
    code, _, err = memo("corrupt", npz, "--out", tmp_path / "c", "--corruptions", "contrast", "--workers", 1)
    assert code == 1 and "No space left on device" in err
    assert not digests(tmp_path / "c")
