"""`memo report` against figures counted independently from the records."""

import csv
import io
import re
import shlex
import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.store import open_for_reading, open_for_writing
from memo_tta.report.conclusion import conclude
from memo_tta.report.html import run_page
from memo_tta.report.pairing import settings
from memo_tta.report.run import open_run
from memo_tta.report.terminal import print_runs
from tests.evaluation.test_damaged_runs import reachable_folder, read_only
from tests.runs import random_records, record, write_run

COLUMNS = [
    *("dataset", "corruption", "severity", "sample", "method", "label", "prediction", "score"),
    *("entropy_before", "entropy_after", "marginal_entropy", "adapted", "status", "reason", "seconds"),
    *("views_seconds", "model_seconds", "predict_seconds", "shift"),
]
PARTS = [("fog", 1), ("fog", 5), ("snow", 1), ("snow", 5)]
OWN = """
import torch
from torch import nn
import memo_tta as mt

def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5))
    return mt.Classifier(net, size=8, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list("abcde"))
"""


@pytest.fixture
def run(tmp_path):
    """Write a run with four parts of unequal size."""
    return write_run(tmp_path / "run", random_records(PARTS, (30, 40, 50, 60)))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Write a model file and a data file."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "own.py").write_text(OWN)
    x = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "own.npz", x=x, y=np.arange(40) % 5)
    return folder


def evaluate(memo, real, out):
    options = ("--option", "n_views=4", "--option", "memo.lr=2.0", "--option", "memo.optimizer=sgd")
    words = ("evaluate", real / "own.npz", "--model", f"{real}/own.py:build", "--workers", 1, "--out", out)
    return memo(*words, *options, "--limit", 30, "--seed", 3, "--option", "memo.threshold=none")


def rows_of(page):
    """Return the words of each cell of the main table, by method."""
    rows = re.findall(r'<tr class="method"><th>(.*?)</th>(.*?)</tr>', page)
    cells = ((name, re.findall("<td>(.*?)</td>", row)) for name, row in rows)
    return {name: [re.sub("<.*?>", " ", cell).split() for cell in row] for name, row in cells}


def test_table_and_page_say_what_pandas_counts(memo, run, tmp_path):
    words = ("--parquet", tmp_path / "out.parquet", "--html", tmp_path / "out.html")
    code, out, _ = memo("report", run, *words)
    assert code == 0
    data = pd.read_parquet(tmp_path / "out.parquet")
    data["wrong"] = data["label"] != data["prediction"]
    parts = pd.Series(data.groupby(["method", "corruption", "severity"])["wrong"].mean())
    errors = {method: 100 * mean for method, mean in pd.Series(parts.groupby("method").mean()).items()}
    points = data.pivot(index=["corruption", "severity", "sample"], columns="method", values="wrong")
    seconds = data.groupby("method")["seconds"].median()
    page = rows_of((tmp_path / "out.html").read_text("utf-8"))
    for method in ("source", "tta", "memo"):
        cells = page[method]
        assert cells[0][0] == f"{errors[method]:.1f}" and cells[6] == [f"{seconds[method]:.4f}"]
        line = next(line for line in out.splitlines() if line.split()[:1] == [method])
        assert line.split()[1] == f"{errors[method]:.1f}"
        if method != "source":
            difference = f"{errors[method] - errors['source']:+.1f}"
            helped = (points["source"] & ~points[method]).sum()
            hurt = (points[method] & ~points["source"]).sum()
            assert cells[1][0].replace("−", "-") == difference
            assert (cells[2], cells[3]) == ([str(helped)], [str(hurt)])
            assert line.split()[5] == difference and line.split()[9:11] == [str(helped), str(hurt)]
    assert page["memo"][5][0].replace("−", "-") == f"{errors['memo'] - errors['tta']:+.1f}"


def test_the_files_have_these_columns(memo, run, tmp_path):
    other = write_run(tmp_path / "other", random_records([("", 0)], 5))
    memo("report", run, "--csv", tmp_path / "one.csv", "--parquet", tmp_path / "one.parquet")
    memo("report", run, other, "--csv", tmp_path / "two.csv", "--parquet", tmp_path / "two.parquet")
    one, two = pd.read_parquet(tmp_path / "one.parquet"), pd.read_parquet(tmp_path / "two.parquet")
    assert list(one.columns) == COLUMNS and list(two.columns) == ["run", *COLUMNS]
    assert len(one) == 3 * 180 and len(two) == len(one) + 15 and set(two["run"]) == {str(run), str(other)}
    assert one["adapted"].dtype == bool and one["marginal_entropy"].isna().tolist().count(True) == 2 * 180
    with (tmp_path / "one.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == COLUMNS and len(lines) == 1 + len(one)
    with open_for_reading(run) as store:
        first = next(store.records())
    assert lines[1][7] == repr(first.score) and lines[1][3] == first.sample
    read = pd.read_csv(tmp_path / "two.csv", keep_default_na=False)
    assert read["sample"].tolist() == two["sample"].tolist()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        *("one.csv", "one.parquet", "two.csv", "two.parquet")
    ]


def test_differences_are_green_where_they_help(tmp_path):
    answers = [("source", (0, 1)), ("tta", (0, 0)), ("memo", (1, 1))]
    records = [
        record(m, position, bool(right)) for m, rights in answers for position, right in enumerate(rights)
    ]
    run = open_run(write_run(tmp_path / "run", records))
    output = io.StringIO()
    print_runs([run], Console(file=output, force_terminal=True, width=200, color_system="standard"))
    lines = output.getvalue().splitlines()[1:]
    assert [line.split()[0] for line in lines[1:4]] == ["source", "tta", "memo"]
    assert "run · made" in lines[0] and "\x1b[31m" in lines[2] and "\x1b[32m" in lines[3]
    assert re.search(r"\[31m *\+50\.0", lines[2]) and re.search(r"\[32m *-50\.0", lines[3])
    output = io.StringIO()
    print_runs([run], Console(file=output, force_terminal=True, width=80, color_system=None))
    text = output.getvalue()
    assert text.count("method") == 2 and "…" not in text and max(map(len, text.splitlines())) <= 80
    assert all(title in text for title in ("to source", "to tta", "s/image", "predict"))


def test_what_comes_from_the_run_is_escaped(tmp_path):
    evil = "<script>alert(1)</script>&\"'"
    records = random_records([(evil, 1), (evil, 2)], dataset=evil, methods=("source", "memo", evil))
    job = EvaluationJob(
        data=[evil], model=evil, methods=("source", "memo", evil), options={"memo": {evil: evil}}
    )
    facts = {
        "job": job.as_dict(),
        "labels": {evil: [evil] * 5},
        "versions": {evil: evil},
        "host": {evil: evil},
    }
    folder = write_run(tmp_path / "<b>$run", records, **facts, began=evil, fingerprint=evil)
    page = run_page([open_run(folder)])
    assert "<script" not in page and "<b>" not in page and "&lt;script&gt;" in page
    assert re.search(r"""(?:alt|style)="[^"]*<""", page) is None


def test_the_page_is_alone_in_the_world_and_always_the_same(run):
    page = run_page([open_run(run)])
    assert "http" not in page and "<script" not in page and "<link" not in page and "url(" not in page
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page)
    assert page == run_page([open_run(run)])
    titles = ["Error against time", "Gain and harm", "Results", "By corruption and level", "Helped and hurt"]
    titles += ["Calibration", "By class", "What this suggests", "How to reproduce these figures"]
    assert re.findall(r"<h[23]>(.*?)</h[23]>", page) == titles


def test_a_run_of_one_part_has_no_map(tmp_path):
    page = run_page([open_run(write_run(tmp_path / "run", random_records([("", 0)], methods=("tta",))))])
    assert "By corruption" not in page and "Helped and hurt" not in page and "Calibration" in page


def test_what_is_no_run_and_what_is_empty(memo, tmp_path):
    code, _, err = memo("report", tmp_path)
    assert code == 1 and "is not a run, it has no records.sqlite" in err and err.count("\n") == 1
    job = EvaluationJob(data=["sample"], model="resnet26", limit=7)
    empty = write_run(tmp_path / "empty", [], job=job.as_dict())
    code, _, err = memo("report", empty, "--csv", tmp_path / "out.csv")
    assert code == 1 and "no records yet" in err and not (tmp_path / "out.csv").exists()
    assert f"memo evaluate sample --model resnet26 --methods source,memo --limit 7 --out {empty}" in err
    with open_for_writing(tmp_path / "new"):
        pass
    assert "no records yet" in memo("report", tmp_path / "new")[2]


def test_an_unfinished_run_says_what_is_missing(memo, real, tmp_path):
    job = EvaluationJob(
        data=[str(real / "own.npz")], model="own", methods=("source", "tta", "memo"), limit=30
    )
    records = [
        r for r in random_records([("", 0)], 20, dataset="own") if r.method != "tta" or r.position < 15
    ]
    run = write_run(tmp_path / "run", records, job=job.as_dict(), total=90)
    code, out, _ = memo("report", run, "--html", tmp_path / "out.html")
    assert code == 0 and "35 of 90 records are missing: continue with `memo evaluate" in out
    assert "tta has 15 of 20 images; differences use shared images" in out
    assert "35 of 90 records are missing" in (tmp_path / "out.html").read_text("utf-8")


def test_a_real_run_with_its_pictures_and_its_command(memo, real, tmp_path):
    out = tmp_path / "real run"
    assert evaluate(memo, real, out)[0] == 0
    opened = open_run(out)
    assert opened.stored == 90 and not opened.notes and opened.n_views("memo") == 4
    code, _, err = memo(*shlex.split(opened.command)[1:])  # a run of another job would be refused
    assert code == 0, err
    page = run_page([opened])
    (setting,) = settings([opened])
    shown = conclude(setting).best
    change = setting.row(shown).to_source
    assert change is not None and (change.helped or change.hurt)
    assert f"The images that {shown} helped and hurt most" in page
    assert page.count(f"by {shown} (true class") == 2 * panels_of(change)  # as caption and as description
    assert page.count('<img class="panel" src="data:image/png') == panels_of(change)
    assert "torch" in page and opened.metadata["fingerprint"] in page and opened.metadata["began"] in page
    (real / "own.py").rename(real / "away.py")
    try:
        page = run_page([open_run(out)])
    finally:
        (real / "away.py").rename(real / "own.py")
    assert '<img class="panel"' not in page and "Pictures need the run" in page and "does not exist" in page


def panels_of(change):
    return min(3, change.helped) + min(3, change.hurt)


def test_pictures_of_other_weights_are_left_out(memo, real, tmp_path):
    assert evaluate(memo, real, tmp_path / "run")[0] == 0
    with open_for_writing(tmp_path / "run") as store:
        store.save_metadata({"fingerprint": "0" * 32})
    assert "the weights are no longer those of the run" in run_page([open_run(tmp_path / "run")])


def test_options_are_written_as_the_command_line_reads_them(tmp_path):
    from memo_tta.cli.method_options import all_method_options
    from memo_tta.methods import METHODS

    values = {"lr": 1e-05, "threshold": None, "optimizer": "sgd", "augment": "true", "params": "1e3 x"}
    job = EvaluationJob(data=["my data"], model="resnet26", options={"memo": values, "tta": {"n_views": 3}})
    words = shlex.split(
        open_run(write_run(tmp_path / "r", [record("tta", 0, True)], job=job.as_dict())).command
    )
    options = [after for word, after in pairwise(words) if word == "--option"]
    assert all_method_options(["memo", "tta"], list(METHODS), None, options) == job.options
    assert words[2] == "my data"


def test_views_are_those_that_the_method_took(tmp_path):
    job = EvaluationJob(data=["made"], model="resnet26", methods=("tta", "restore", "memo", "source"))
    run = open_run(write_run(tmp_path / "run", random_records([("", 0)]), job=job.as_dict()))
    assert [run.n_views(name) for name in job.methods] == [32, 12, 32, None]
    former = {"restore": {"n_views": 8}, "memo": {"preset": "best"}}  # an option of a former version
    given = EvaluationJob(data=["made"], model="resnet26", methods=("restore", "memo"), options=former)
    run = open_run(write_run(tmp_path / "given", random_records([("", 0)]), job=given.as_dict()))
    assert (run.n_views("restore"), run.n_views("memo")) == (8, None)
    assert run.changed_options("restore") == {"n_views": 8}


def views_run(folder, views):
    options = {name: {"n_views": views} for name in ("tta", "memo")}
    job = EvaluationJob(data=["gone"], model="resnet50", methods=("source", "tta", "memo"), options=options)
    return write_run(folder, random_records([("", 0)], seed=views), job=job.as_dict())


def test_several_runs_stand_one_below_the_other(memo, tmp_path):
    runs = [views_run(tmp_path / f"views{n}", n) for n in (4, 16)]
    code, out, _ = memo("report", *runs, "--html", tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text("utf-8")
    assert code == 0 and out.count("error %") == 1
    for name in ("resnet50 · made (views4)", "resnet50 · made (views16)"):
        lines = [line.rstrip() for line in out.splitlines() if line.startswith(name)]
        assert lines[:2] == [name, f"{name}: 40 images"] and lines[2].startswith(f"{name}: Nothing")
        assert len(lines) == 3 and page.count(f"{name} <small>40 images</small>") == 1
    assert "The number of views" in page and "<h1>resnet50 · made: 2 runs</h1>" in page
    same = [open_run(views_run(tmp_path / name, 8)) for name in ("a", "b")]
    assert "The number of views" not in run_page(same)


def test_corruption_errors_stand_in_a_column_of_their_own(memo, tmp_path):
    records = random_records([("fog", 1), ("snow", 5)], dataset="imagenet-c")
    plain = write_run(tmp_path / "plain", records, metric="mce")
    out = memo("report", plain)[1]
    assert "mCE" in out and "rel. mCE" not in out
    clean = write_run(tmp_path / "clean", records + random_records([("", 0)], dataset="val"), metric="mce")
    assert "rel. mCE" in memo("report", clean)[1]
    row = open_run(clean).tables[0][1][0]
    page = rows_of(run_page([open_run(clean)]))
    assert page["source"][1] == [] and open_run(clean).tables[1][1][0].mce is None
    assert f"{row.mce:.1f}" in memo("report", clean)[1]


def test_of_many_classes_the_worst_are_shown(tmp_path):
    from dataclasses import replace

    # Class n is wrong n times of 40.
    records = [
        replace(
            record("source", position, True),
            target=position % 40,
            prediction=position % 40 if position // 40 >= position % 40 else 99,
        )
        for position in range(1600)
    ]
    page = run_page(
        [open_run(write_run(tmp_path / "run", records, labels={"made": [f"class{n}" for n in range(40)]}))]
    )
    table = page[page.index("By class") :]
    assert re.findall(r"<th>(class\d+)</th>", table) == [f"class{n}" for n in range(39, 29, -1)]
    assert "10 of 40 classes, those with the largest error of source first" in page


def test_classes_without_images_do_not_count_as_many(tmp_path):
    labels = {"made": [f"class{n}" for n in range(40)]}
    run = write_run(tmp_path / "run", random_records([("", 0)]), labels=labels)
    page = run_page([open_run(run)])
    rows = re.findall(r"<th>(class\d+)</th><td>.*?</td><td.*?>([\d.]+)</td>", page)
    errors = [float(error) for _, error in rows]
    assert sorted(name for name, _ in rows) == [f"class{n}" for n in range(5)]
    assert errors == sorted(errors, reverse=True) and len(set(errors)) > 1
    assert "All 5 classes, those with the largest error of source first" in page


def test_a_missing_library_is_one_line(memo, run, tmp_path, monkeypatch):
    for library, option in (("pyarrow", "--parquet"), ("matplotlib", "--html")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, library, None)
            code, _, err = memo("report", run, option, tmp_path / "out")
        assert code == 1 and f"{library} is not installed: pip install 'memo-tta[report]'" in err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--csv", "--parquet", "--html", "--markdown"])
def test_a_file_that_cannot_be_written_is_one_line(memo, run, tmp_path, option, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("content")
    for target, problem in {
        "folder": f"{tmp_path / 'folder'}: is a folder, expected a file: choose another path",
        "file/out": f"{tmp_path / 'file'}: is a file, expected a folder: choose another path",
        "x" * 250: "File name too long",  # with the ending of a temporary file
    }.items():
        code, _, err = memo("report", run, option, tmp_path / target)
        assert code == 1 and problem in err and err.count("\n") == 1 and "--debug" not in err

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("memo_tta.files.os.fsync", full_disk)
    code, _, err = memo("report", run, option, tmp_path / "out")
    wanted = f"{tmp_path / 'out'}: cannot be written (No space left on device): make room, then run the same"
    assert code == 1 and wanted in err and "--debug" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "run"]


def test_a_place_without_permission_is_one_line(memo):
    with reachable_folder() as folder:
        run = write_run(folder / "run", random_records([("", 0)]))
        targets = {
            "--csv": folder / "out.csv",
            "--html": folder / "new" / "out.html",
            "--salvage": folder / "b",
        }
        wanted = f"{folder}: may not be written to: choose a place where you may write"
        with read_only(folder):
            for option, target in targets.items():
                code, _, err = memo("report", run, option, target)
                assert code == 1 and wanted in err and err.count("\n") == 1
            code, _, err = memo("evaluate", "sample", "--model", "resnet26", "--out", folder / "new")
            assert code == 1 and wanted in err and err.count("\n") == 1
        assert [path.name for path in folder.iterdir()] == ["run"]


def test_a_device_is_not_replaced_by_a_file(memo, run):
    code, _, err = memo("report", run, "--csv", "/dev/null")
    assert code == 1 and "/dev/null: is a device, expected a file" in err
