"""Tables, tar shards and data sets of the hub: the same images everywhere, and one line for what is bad."""

import pickle
import tarfile
import time

import numpy as np
import pytest
from PIL import Image

import memo_tta as mt
from memo_tta.data.catalog import load_dataset, locate
from memo_tta.errors import MemoError
from memo_tta.evaluation.store import open_for_reading
from tests.data import own
from tests.data.own import COUNT, FORMS, LABELS, PICTURES, TARGETS

pytestmark = pytest.mark.usefixtures("data")


@pytest.fixture
def model(tmp_path):
    (tmp_path / "own.py").write_text(own.MODEL)
    return f"{tmp_path / 'own.py'}:build"


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_images_and_classes(form, tmp_path):
    dataset = mt.load_dataset(FORMS[form](tmp_path))
    assert list(dataset.labels) == LABELS and dataset.targets.tolist() == TARGETS.tolist()
    assert len({dataset.id(position) for position in range(COUNT)}) == len(dataset) == COUNT
    for position in (COUNT - 1, 0):
        np.testing.assert_array_equal(dataset[position].image, PICTURES[position])


@pytest.mark.parametrize("form", FORMS)
def test_a_data_set_travels_without_its_images(form, tmp_path):
    dataset = load_dataset(FORMS[form](tmp_path))
    first = dataset[0].image  # may have opened files
    sent = pickle.dumps(dataset)
    assert len(sent) < 1500 + 60 * COUNT < len(own.png(0))
    np.testing.assert_array_equal(pickle.loads(sent)[0].image, first)


@pytest.mark.parametrize("form", FORMS)
def test_the_absolute_spec_is_the_same_data_from_any_folder(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = FORMS[form](tmp_path).replace(f"{tmp_path}/", "")
    absolute, paths = locate(f"{spec}+fog:2")
    monkeypatch.chdir("/")
    part = load_dataset(absolute)
    assert (part.corruption, part.severity, len(part)) == ("fog", 2, COUNT)
    assert all(path.exists() and path.is_absolute() for path in paths) and paths


def folder(path):
    path.mkdir()
    return path


def predictions(run):
    with open_for_reading(run) as store:
        return {(record.position, record.target, record.prediction) for record in store.records()}


def test_evaluate_gives_the_same_predictions_for_every_form(memo, model, tmp_path):
    np.savez(tmp_path / "array.npz", x=PICTURES, y=TARGETS)
    specs = {
        "array": tmp_path / "array.npz",
        **{form: write(folder(tmp_path / form)) for form, write in FORMS.items()},
    }
    found = {}
    for form, spec in specs.items():
        run = tmp_path / f"run-{form}"
        words = ("evaluate", spec, "--model", model, "--methods", "source", "--workers", 1, "--out", run)
        code, _, err = memo(*words)
        assert code == 0 and "10 images of 5 classes" in err, err
        found[form] = predictions(run)
    assert len(found["array"]) == COUNT and all(rows == found["array"] for rows in found.values())


def test_worker_processes_open_every_form_by_themselves(memo, model, tmp_path):
    specs = [own.as_shards(tmp_path), own.as_saved(tmp_path), own.as_csv(tmp_path)]
    words = ("evaluate", *specs, "--model", model, "--methods", "source", "--out", tmp_path / "run")
    code, _, err = memo(*words, "--workers", 2)
    assert code == 0, err
    with open_for_reading(tmp_path / "run") as store:
        assert len(list(store.records())) == 3 * COUNT


def test_two_data_sets_of_one_name_are_refused(memo, model, tmp_path):
    words = ("evaluate", own.as_tar(tmp_path), own.as_csv(tmp_path), "--model", model, "--methods", "source")
    code, _, err = memo(*words, "--out", tmp_path / "run")
    assert code == 1 and "two data sets are named 'own': rename one, or evaluate them in two runs" in err
    assert not (tmp_path / "run").exists()


def test_tune_takes_a_tar_file(memo, model, tmp_path):
    words = ("tune", own.as_tar(tmp_path), "--model", model, "--out", tmp_path / "memo.toml", "--limit", 1)
    code, _, err = memo(*words, "--n-views", 2, "--workers", 1)
    assert code == 0 and (tmp_path / "memo.toml").is_file(), err


@pytest.mark.parametrize("form", ["csv", "tar", "saved"])
def test_corrupt_writes_one_folder_per_class_and_leaves_the_images_alone(form, memo, tmp_path):
    spec = FORMS[form](tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    out = tmp_path / "corrupted"
    code, _, err = memo("corrupt", spec, "--out", out, "--corruptions", "contrast", "--workers", 1)
    assert code == 0, err
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len(list((out / "contrast/3").rglob("*.JPEG"))) == COUNT
    clean, part = load_dataset(f"{spec}+contrast:3"), load_dataset(f"{out}+contrast:3")
    assert list(part.labels) == LABELS and part.name == "corrupted"
    order = np.argsort(TARGETS, kind="stable")
    assert part.targets.tolist() == TARGETS[order].tolist()
    for position, original in enumerate(order):
        error = part[position].image.astype(float) - clean[int(original)].image
        assert np.abs(error.reshape(5, 8, 5, 8, 3).mean((1, 3))).max() < 12  # blocks survive JPEG


def test_absolute_paths_in_a_table_are_never_written_to(memo, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    Image.fromarray(PICTURES[0]).save(tmp_path / "elsewhere/x.png")
    table = own.write_csv(tmp_path / "t.csv", ("path", "label"), (tmp_path / "elsewhere/x.png", "../a"))
    words = ("corrupt", table, "--out", tmp_path / "out", "--corruptions", "contrast", "--workers", 1)
    assert memo(*words)[0] == 0
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["x.png"]
    assert (tmp_path / "out/contrast/1/__a/000000.JPEG").is_file()


def bad_csv(*rows):
    return lambda root: own.write_csv(root / "bad.csv", *rows)


def bad_tar(**members):
    return lambda root: own.write_tar(root / "bad.tar", {k.replace("_", "."): v for k, v in members.items()})


def written(name, content):
    def write(root):
        (root / name).write_bytes(content)
        return root / name

    return write


def bad_end(change):
    """Return a function that writes a tar file with a changed content; its two members take 2,048 bytes."""

    def write(root):
        path = own.write_tar(root / "bad.tar", {"a.png": b"x", "a.cls": b"1"})
        path.write_bytes(change(path.read_bytes()))
        return path

    return write


def linked_tar(root):
    with tarfile.open(root / "bad.tar", "w") as tar:
        header = tarfile.TarInfo("a.png")
        header.type, header.linkname = tarfile.SYMTYPE, str(root / "own.png")
        tar.addfile(header)
    return root / "bad.tar"


def bad_hub(spec="", **features):
    def write(root):
        own.hub_rows(**features).save_to_disk(root / "bad")
        return f"hfds:{root / 'bad'}{spec}"

    return write


def hub_without_rows(root):
    own.hub_rows().select([]).save_to_disk(root / "bad")
    return root / "bad"


def hub_with_hidden_labels(root):
    import datasets

    rows = own.hub_rows().remove_columns("label").add_column("label", [-1] * COUNT)
    rows = rows.cast_column("label", datasets.ClassLabel(names=LABELS))
    rows.save_to_disk(root / "bad")
    return root / "bad"


HEADER, ROW = ("path", "label"), ("own.png", "a")
BAD = {
    "missing table": (lambda root: root / "none.csv", "none.csv: no such file or folder"),
    "missing shard": (lambda root: root / "own-{000..002}.tar", "own-000.tar: no such tar file"),
    "other file": (written("x.txt", b"x"), "x.txt: expected a folder or a .npz, .csv, .parquet, .tar file"),
    "packed tar": (written("x.tar.gz", b"x"), "unpack it to a .tar file"),
    "empty csv": (bad_csv(), "expected one column of paths, named path, file, filename or image, found 0"),
    "no rows": (bad_csv(HEADER), "bad.csv: the table has no rows"),
    "no label column": (
        bad_csv(("path", "kind"), ROW),
        "expected one column of labels, named label, class or target, found 0 among its columns 'path',",
    ),
    "two path columns": (
        bad_csv(("path", "file", "label"), ("a", "b", "c")),
        "named path, file, filename or image, found 2",
    ),
    "missing image": (bad_csv(HEADER, ("none.png", "a")), "none.png: no such file; paths are relative to"),
    "empty label": (bad_csv(HEADER, ("own.png", "")), "expected a class name or index as label, got ''"),
    "negative label": (bad_csv(HEADER, ("own.png", -1)), "expected a label from 0 to 99999, got -1"),
    "label of no class": (
        bad_csv(HEADER, ("own.png", 7)),
        "has 1 classes, the model 5, and '7' is not among",
    ),
    "not an image": (
        bad_csv(HEADER, ("own.py", "a")),
        "own.py: expected the name of an image file, like a.jpg",
    ),
    "short row": (bad_csv(HEADER, ("own.png",)), "line 2: expected 2 values, found 1"),
    "not a csv": (written("x.csv", b"\xff\xfe\0"), "x.csv: cannot be read as CSV"),
    "not a parquet": (written("x.parquet", b"PAR1"), "x.parquet: cannot be read as Parquet"),
    "not a tar": (written("x.tar", b"hello"), "x.tar: not an uncompressed tar file, or damaged"),
    "empty tar": (bad_tar(), "expected samples like 0001.jpg and 0001.cls, found none"),
    "tar cut in a member": (bad_end(lambda content: content[:700]), "or damaged (unexpected end of data)"),
    "tar cut after a member": (bad_end(lambda content: content[:2048]), "end marker is missing"),
    "tar after tar": (bad_end(lambda content: content + content), "or something comes after it"),
    "damaged header": (bad_end(lambda content: b"own" + content[3:]), "or damaged (bad checksum)"),
    "link in a tar": (linked_tar, "a.png: expected a file or a folder, got a link"),
    "no label": (bad_tar(a_png=b"x"), "a: expected one image and one .cls or .json file, found a.png"),
    "two images": (bad_tar(a_png=b"x", a_jpg=b"x", a_cls=b"1"), "found a.png, a.jpg, a.cls"),
    "image twice": (bad_tar(a_png=b"x", a_PNG=b"x", a_cls=b"1"), "found a.png, a.PNG, a.cls"),
    "no key": (bad_tar(a_png=b"x", a_json=b'{"b": 1}'), "expected one of the keys label, class, target, cls"),
    "no split": (lambda root: f"{own.as_split(root)}s", "has no split 'tests', found train, test"),
    "several splits": (
        lambda root: own.as_split(root).removesuffix(":test"),
        "expected the name of a split, one of train, test, like hfds:",
    ),
    "no column": (bad_hub("::image:kind"), "has no column 'kind', found image, label"),
    "not images": (bad_hub("::label:image"), "label: expected a column of images: image"),
    "hub without rows": (hub_without_rows, "has no rows, expected one per image"),
    "hidden labels": (hub_with_hidden_labels, "image 0 has label -1, expected 0..4: choose a split whose"),
    "odd spec": (lambda root: "hfds:a:b:c", "expected hfds:NAME, hfds:NAME:SPLIT or hfds:NAME:SPLIT:IMAGE_"),
    "odd name": (lambda root: "hfds:a b", "neither a folder nor the name of a data set, like owner/name"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_one_line_soon_and_nothing_is_written(case, memo, model, tmp_path, capsys):
    (tmp_path / "own.png").write_bytes(own.png(0))
    make, message = BAD[case]
    words = ("evaluate", make(tmp_path), "--model", model, "--methods", "source", "--workers", 1)
    capsys.readouterr()  # what the library printed while it wrote the data
    began = time.monotonic()
    code, out, err = memo(*words, "--out", tmp_path / "run")
    assert (code, out, err.count("\n")) == (1, "", 1) and message in err, err
    assert not (tmp_path / "run").exists() and time.monotonic() - began < 5


@pytest.mark.parametrize("form", ["tar", "csv"])
def test_an_image_that_cannot_be_read_names_itself(form, tmp_path):
    spec = bad_tar(a_png=b"no picture", a_cls=b"1")(tmp_path)
    if form == "csv":
        (tmp_path / "x.png").write_bytes(b"no picture")
        spec = own.write_csv(tmp_path / "bad.csv", HEADER, ("x.png", 1))
    with pytest.raises(MemoError, match=r"(bad\.tar: bad/a|x\.png): not an image"):
        _ = load_dataset(str(spec))[0]
