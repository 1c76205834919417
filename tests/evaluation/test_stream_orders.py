"""Orders in which points reach methods that depend on other points, and runs over such streams."""

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from memo_tta.data.catalog import load_parts
from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError
from memo_tta.evaluation.driver import evaluate
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import SkippedPoint
from memo_tta.evaluation.store import COLUMNS, FILE, RecordStore, open_for_reading, open_for_writing
from memo_tta.evaluation.stream_orders import ORDERS, DataStream
from memo_tta.evaluation.worker import WorkerContext
from memo_tta.methods import METHODS, MethodEntry, Status
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Options
from memo_tta.models.classifier import Classifier
from memo_tta.report.run import evaluate_command, open_run
from memo_tta.workers.processes import InProcess
from tests.data.published import save_folder
from tests.evaluation.test_driver import BAD, OWN, RAISE, failed_records, rows

POINTS = 24
LEVELS = [("fog", 5), ("fog", 1), ("contrast", 3), ("contrast", 1)]  # not in the order of a gradual stream
DEPENDENT = "source,tent,bn,memo"
SMALL = ("--option", "tent.batch_size=6", "--option", "bn.batch_size=7", "--option", "memo.n_views=2")
CARRIED = ("--option", "memo.reset=never")


def by_hand(seed: int, name: str) -> np.random.Generator:
    """Return the documented generator of a name."""
    digest = hashlib.blake2b(f"str:{name}".encode(), digest_size=16).digest()
    words = [int.from_bytes(digest[start : start + 4], "little") for start in range(0, 16, 4)]
    return np.random.Generator(np.random.PCG64([seed, *words]))


def part(name: str, corruption: str, severity: int, points: int) -> Dataset:
    targets = np.random.default_rng(points).integers(0, 3, points)
    images = np.zeros((points, 1, 1, 3), np.uint8)
    return Dataset(name, images, targets, list("abc"), corruption=corruption, severity=severity)


PARTS = [part("made", *level, 10 + n) for n, level in enumerate(LEVELS)] + [part("other", "", 0, 9)]


def pairs(streams: list[DataStream]) -> list[list[tuple[int, int]]]:
    return [list(stream.points(range(len(stream)))) for stream in streams]


def shuffled(index: int, seed: int) -> list[int]:
    one = PARTS[index]
    name = f"order of {one.name} {one.corruption} {one.severity}"
    return by_hand(seed, name).permutation(len(one)).tolist()


def expected(order: str, seed: int) -> list[list[tuple[int, int]]]:
    """Construct the streams point by point."""
    own = [[(index, position) for position in range(len(one))] for index, one in enumerate(PARTS)]
    random = [[(index, position) for position in shuffled(index, seed)] for index in range(len(PARTS))]
    if order == "data":
        return own
    if order == "iid":
        return random
    if order == "sorted":
        return [
            [point for label in range(3) for point in points if PARTS[point[0]].targets[point[1]] == label]
            for points in random
        ]
    if order == "gradual":
        return [[*random[1], *random[0], *random[3], *random[2]], random[4]]
    streams = []
    for name, members in {"made": range(4), "other": [4]}.items():
        left = {index: iter(random[index]) for index in members}
        slots = [index for index in members for _ in range(len(PARTS[index]))]
        taken = by_hand(seed, f"order of {name}").permutation(slots).tolist()
        streams.append([next(left[index]) for index in taken])
    return streams


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("name", ORDERS)
def test_streams_are_those_constructed_point_by_point(name, seed):
    streams = ORDERS[name].streams(PARTS, seed)
    assert pairs(streams) == expected(name, seed)
    every = [point for stream in pairs(streams) for point in stream]
    assert sorted(every) == [(index, n) for index, one in enumerate(PARTS) for n in range(len(one))]
    (first, _, _) = (ORDERS[name].streams(PARTS, s)[0].positions.tolist() for s in (seed, seed + 1, seed))
    assert (first == ORDERS[name].streams(PARTS, seed + 1)[0].positions.tolist()) == (name == "data")


def test_a_slice_of_a_stream_is_grouped_by_part():
    (stream, _) = ORDERS["mixed"].streams(PARTS, 0)
    wanted = defaultdict[int, list[int]](list)
    for index, position in pairs([stream])[0][5:20]:
        wanted[index].append(position)
    found = {index: positions.tolist() for index, positions in stream.by_part(range(5, 20))}
    assert found == wanted and len(found) > 1


def test_a_mixed_stream_interleaves_all_parts_from_its_start():
    (stream, _) = ORDERS["mixed"].streams(PARTS, 0)
    assert set(stream.parts[:20].tolist()) == {0, 1, 2, 3}
    assert 0 < int((np.diff(stream.parts) == 0).sum()) < len(stream) / 2


@pytest.mark.parametrize("name", ["mixed", "gradual"])
def test_a_data_set_of_one_part_is_iid(name):
    assert pairs(ORDERS[name].streams(PARTS[4:], 3)) == pairs(ORDERS["iid"].streams(PARTS[4:], 3))


class Observer(Method[Options]):
    """An online method that records the points of each batch, and when it is reset."""

    options_type = Options
    seen: ClassVar[list[list[bytes]]] = []  # one list for each reset

    @property
    def online(self) -> bool:
        return True

    def reset(self) -> None:
        type(self).seen.append([])

    def run(self, batch: Batch) -> list[Outcome]:
        self.seen[-1] += [point.x.numpy().tobytes() for point in batch.points]
        return [Outcome(Status.ADAPTED, marginal_entropy=float(len(self.seen[-1]))) for _ in batch.points]


class PairObserver(Observer):
    """An episodic method that takes two points at once."""

    seen: ClassVar[list[list[bytes]]] = []

    @property
    def online(self) -> bool:
        return False

    @property
    def points(self) -> int:
        return 2


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with a model, and data that is sorted by class."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "own.py").write_text(OWN)
    x = np.random.default_rng(0).integers(0, 256, (POINTS, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "own.npz", x=x, y=np.arange(POINTS) * 5 // POINTS)
    return folder


@pytest.fixture
def job(files) -> EvaluationJob:
    corruptions = {"corruptions": ("fog", "contrast"), "severities": (3, 1)}
    return EvaluationJob(data=[str(files / "own.npz")], model=f"{files}/own.py:build", **corruptions)


@pytest.fixture
def arguments(files):
    """Return the arguments of the command, without --order and --out."""
    levels = ("--corruptions", "fog,contrast", "--severities", "3,1")
    model = ("--model", f"{files}/own.py:build", "--methods", DEPENDENT)
    return ("evaluate", files / "own.npz", *model, *SMALL, *CARRIED, *levels)


def run_job(job: EvaluationJob, out: Path) -> None:
    with InProcess() as engine:
        evaluate(job, out, engine, lambda *_: None)


@pytest.mark.parametrize("order", ORDERS)
def test_a_method_gets_the_points_in_the_order_and_starts_afresh_with_each_stream(
    job, tmp_path, monkeypatch, order
):
    for name, kind in {"observer": Observer, "pairs": PairObserver}.items():
        monkeypatch.setitem(METHODS, name, MethodEntry("", kind))
        monkeypatch.setattr(kind, "seen", [])
    context = WorkerContext(replace(job, methods=("observer", "pairs"), order=order, seed=3))
    content = {
        context.classifier.point(data[position].image).x.numpy().tobytes(): (index, position)
        for index, (_, data) in enumerate(context.parts)
        for position in range(POINTS)
    }
    assert len(content) == 4 * POINTS
    run_job(context.job, tmp_path / "run")
    wanted = pairs(ORDERS[order].streams([data for _, data in context.parts], 3))
    seen = [[content[x] for x in points] for points in Observer.seen if points]
    assert seen == wanted and len(seen) == (1 if order in ("mixed", "gradual") else 4)
    batches = [[content[x] for x in points] for points in PairObserver.seen if points]
    assert batches == [stream[at : at + 2] for stream in wanted for at in range(0, len(stream), 2)]
    with open_for_reading(tmp_path / "run") as store:
        counted = {
            (r.corruption, r.severity, r.position): r.marginal_entropy
            for r in store.records()
            if r.method == "observer"
        }
    for stream in wanted:
        for place, (index, position) in enumerate(stream, 1):
            data = context.parts[index][1]
            assert counted[data.corruption, data.severity, position] == place


def test_methods_that_do_not_depend_on_other_points_predict_the_same_in_any_order(memo, arguments, tmp_path):
    found = {}
    for order in ORDERS:
        methods = ("--methods", "source,tta,restore,bn1,memo", "--option", "memo.reset=always")
        code, _, err = memo(
            *arguments[:4],
            *methods,
            "--option",
            "n_views=2",
            *arguments[-4:],
            "--workers",
            1,
            "--order",
            order,
            "--out",
            tmp_path / order,
        )
        assert code == 0, err
        found[order] = rows(tmp_path / order)
        assert not any("order of the images" in note for note in open_run(tmp_path / order).notes)
    assert len(found["data"]) == 5 * 4 * POINTS and all(each == found["data"] for each in found.values())


@pytest.mark.parametrize("order", ["sorted", "mixed", "gradual"])
def test_two_workers_give_the_records_of_one(memo, arguments, tmp_path, order):
    for workers in (1, 2):
        out = ("--order", order, "--workers", workers, "--out", tmp_path / f"{workers}")
        assert memo(*arguments, *out)[0] == 0
    assert rows(tmp_path / "1") == rows(tmp_path / "2") and len(rows(tmp_path / "1")) == 4 * 4 * POINTS


def test_orders_give_other_records_to_methods_that_depend_on_them(memo, arguments, tmp_path):
    found = {}
    for order in ORDERS:
        assert memo(*arguments, "--order", order, "--workers", 1, "--out", tmp_path / order)[0] == 0
        found[order] = rows(tmp_path / order)
    method = COLUMNS.index("method")
    for name in DEPENDENT.split(","):
        of_method = [[row for row in found[order] if row[method] == name] for order in ORDERS]
        different = [each for n, each in enumerate(of_method) if each not in of_method[:n]]
        assert len(different) == (1 if name == "source" else len(ORDERS)), name


class Killed(BaseException):
    """The process dies."""


@pytest.mark.parametrize("order", ["mixed", "gradual", "sorted"])
def test_a_run_that_dies_at_any_unit_resumes_exactly(job, tmp_path, monkeypatch, order):
    options = {"tent": {"batch_size": 5}, "bn": {"batch_size": 7}, "memo": {"n_views": 2, "reset": "never"}}
    job = replace(job, methods=tuple(DEPENDENT.split(",")), options=options, order=order)
    run_job(job, tmp_path / "whole")
    wanted, add = rows(tmp_path / "whole"), RecordStore.add
    alive = 0

    def add_some(store: RecordStore, found: Any) -> None:
        """Store the rows of a few units, then die before the next one is stored."""
        nonlocal alive
        if alive == 0:
            raise Killed
        alive -= 1
        add(store, found)

    kills = 0
    while True:
        monkeypatch.setattr(RecordStore, "add", add_some)
        alive = 1 + kills % 3
        try:
            run_job(job, tmp_path / "run")
        except Killed:
            stored = [row for row in rows(tmp_path / "run") if row[COLUMNS.index("method")] == "tent"]
            assert len(stored) % (4 * POINTS if order != "sorted" else POINTS) == 0  # whole streams
            assert set(rows(tmp_path / "run")) <= set(wanted)
            kills += 1
            assert kills < 100
            continue
        break
    assert kills > 3 and rows(tmp_path / "run") == wanted


def test_a_stream_of_which_records_are_lost_is_computed_again(memo, arguments, tmp_path):
    run = (*arguments, "--order", "mixed", "--workers", 1, "--out", tmp_path / "run")
    assert memo(*run)[0] == 0
    before = rows(tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / FILE)) as connection, connection:
        for method, position in {"tent": 3, "bn": POINTS - 1, "memo": 0, "source": 11}.items():
            connection.execute(
                "DELETE FROM records WHERE corruption = 'fog' AND method = ? AND position = ?",
                (method, position),
            )
    assert len(rows(tmp_path / "run")) == len(before) - 8
    assert memo(*run)[0] == 0 and rows(tmp_path / "run") == before


def test_only_what_is_missing_is_computed_again(job, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "observer", MethodEntry("", Observer))
    monkeypatch.setattr(Observer, "seen", [])
    job = replace(job, methods=("observer",), order="mixed")
    run_job(job, tmp_path / "run")
    run_job(job, tmp_path / "run")
    assert [len(points) for points in Observer.seen if points] == [4 * POINTS]


@pytest.mark.parametrize("workers", [1, 2])
def test_images_that_cannot_be_read_are_left_out_of_a_stream(memo, files, tmp_path, workers):
    save_folder(tmp_path / "data", [f"{kind}/{n}.png" for kind in "abcde" for n in range(3)], 8)
    (tmp_path / "data" / "b" / "1.png").write_bytes(b"no picture")
    words = ("evaluate", tmp_path / "data", "--model", f"{files}/own.py:build", "--methods", "tent,bn")
    levels = ("--corruptions", "contrast", "--severities", "1,3", "--order", "mixed", *SMALL[:4])
    run = (*words, *levels, "--workers", workers, "--out", tmp_path / "run")
    code, _, err = memo(*run)
    assert code == 1 and "not an image" in err and "--skip-bad" in err
    with open_for_reading(tmp_path / "run") as store:
        begun = [astuple(record) for record in store.records()]
    code, _, err = memo(*run, "--skip-bad")
    assert code == 1 and "skip_bad was False, now True" in err
    fresh = (*words, *levels, "--skip-bad", "--workers", workers, "--out", tmp_path / "fresh")
    for _ in range(2):
        code, _, err = memo(*fresh)
        assert code == 3 and "2 images could not be read" in err
        with open_for_reading(tmp_path / "fresh") as store:
            assert len(list(store.records())) == 2 * 2 * 14 and len(store.skipped()) == 2
            assert all(isinstance(row, SkippedPoint) and row.sample == "b/1.png" for row in store.skipped())
    assert len(begun) < 2 * 2 * 15


def test_a_stream_with_a_point_that_fails_is_set_aside_whole(memo, tmp_path):
    (tmp_path / "bad.py").write_text(OWN + BAD.replace("HARM", RAISE))
    x = np.random.default_rng(0).integers(0, 255, (10, 8, 8, 3), dtype=np.uint8)
    x[4] = 255
    np.savez(tmp_path / "bad.npz", x=x, y=np.arange(10) % 5)
    model = ("--model", f"{tmp_path}/bad.py:build", "--methods", "source,bn,tent", *SMALL[:2])
    levels = ("--option", "bn.batch_size=3", "--corruptions", "brightness,contrast", "--severities", "1")
    run = ("evaluate", tmp_path / "bad.npz", *model, *levels, "--order", "mixed", "--workers", 1)
    code, _, err = memo(*run, "--out", tmp_path / "run")
    failed = failed_records(tmp_path / "run")
    assert code == 3 and "too bright" in err and "--order mixed" not in err
    assert {position for method, position in failed if method == "tent"} == set(range(10))
    assert {position for method, position in failed if method == "source"} == {4}
    with open_for_reading(tmp_path / "run") as store:
        left = [(r.corruption, r.method) for r in store.failed_records()]
        done = {(r.corruption, r.method) for r in store.records()}
    assert left.count(("brightness", "tent")) == left.count(("contrast", "tent")) == 10
    assert 0 < sum(method == "bn" for _, method in left) < 20 and ("contrast", "bn") in done
    (tmp_path / "bad.py").write_text(OWN + BAD.replace("HARM", "pass"))
    assert memo(*run, "--out", tmp_path / "run")[0] == 0 and len(rows(tmp_path / "run")) == 3 * 2 * 10


def test_an_unknown_order_lists_the_choices(memo, arguments, tmp_path):
    code, _, err = memo(*arguments, "--order", "shuffled", "--out", tmp_path / "run")
    assert code == 1 and "unknown order 'shuffled': choose from iid, sorted, mixed, gradual, data" in err
    assert not (tmp_path / "run").exists()


def test_help_names_every_order(memo):
    text = " ".join(memo("evaluate", "--help")[1].split())
    assert "[default: iid]" in text and all(f"{name} (" in text for name in ORDERS)


LARGE = """
import torch
from torch import nn
import memo_tta as mt

def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return mt.Classifier(net, size=8, resize=10, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list("abcde"))
"""


@pytest.mark.parametrize("order", ["mixed", "gradual"])
def test_parts_that_need_another_crop_cannot_share_a_stream(memo, files, tmp_path, order):
    (files / "large.py").write_text(LARGE)
    data = (files / "own.npz", f"{files / 'own.npz'}+contrast:3")
    words = ("evaluate", *data, "--methods", "source", "--workers", 1, "--order", order)
    code, _, err = memo(*words, "--model", f"{files}/large.py:build", "--out", tmp_path / "run")
    assert code == 1 and err.count("\n") == 1 and not (tmp_path / "run").exists()
    assert f"order: '{order}' makes one stream of own (clean) and own contrast 3" in err
    assert "the model needs another crop for each: evaluate them in two runs, or with --order iid" in err
    assert memo(*words, "--model", f"{files}/own.py:build", "--out", tmp_path / "run")[0] == 0


def test_parts_with_other_classes_cannot_share_a_stream(job, monkeypatch):
    def parts(*_: object) -> Iterator[Dataset]:
        for level, classes in (("fog", [0, 1, 2]), ("snow", [0, 1, 3])):
            yield replace(part("made", level, 1, 9), classes=classes)

    monkeypatch.setattr("memo_tta.evaluation.worker.load_parts", parts)
    assert len(WorkerContext(job).parts) == 2
    with pytest.raises(ConfigError, match="made fog 1 and made snow 1, but the model needs another classes"):
        WorkerContext(replace(job, order="mixed"))


def test_runs_of_jobs_without_an_order_were_in_the_data_s_order(memo, arguments, tmp_path):
    run = (*arguments, "--out", tmp_path / "run", "--workers", 1)
    assert memo(*run, "--order", "data")[0] == 0
    with open_for_writing(tmp_path / "run") as store:
        job = store.metadata()["job"]
        assert job.pop("order") == "data"
        store.save_metadata({"job": job})
    code, _, err = memo(*run)
    assert code == 1 and "is a run of another job (order was 'data', now 'iid')" in err
    assert memo(*run, "--order", "data")[0] == 0
    assert "--order data" in open_run(tmp_path / "run").command


def test_the_command_and_the_report_name_the_order(memo, arguments, job, tmp_path):
    assert "--order" not in evaluate_command(job, Path("run"))
    assert " --order gradual " in evaluate_command(replace(job, order="gradual"), Path("run"))
    stored = EvaluationJob.from_dict(replace(job, order="mixed").as_dict())
    assert stored is not None and stored.order == "mixed"
    assert memo(*arguments, "--order", "sorted", "--workers", 1, "--out", tmp_path / "run")[0] == 0
    run = open_run(tmp_path / "run")
    (note,) = run.notes
    assert note.startswith("order of the images: sorted (images sorted by class,")
    assert note.endswith("; tent, bn, memo may differ in another") and note in memo("report", run.folder)[1]


def test_a_limit_and_clean_data_are_streams_too(files, tmp_path):
    data = [str(files / "own.npz")]
    job = EvaluationJob(data=data, model=f"{files}/own.py:build", methods=("tent",), limit=9, order="sorted")
    run_job(job, tmp_path / "run")
    (stream,) = ORDERS["sorted"].streams([WorkerContext(job).parts[0][1]], 0)
    targets = WorkerContext(job).parts[0][1].targets
    assert len(rows(tmp_path / "run")) == 9 and (np.diff(targets[stream.positions]) >= 0).all()
    (clean,) = load_parts(data[0])
    assert isinstance(clean, Dataset) and isinstance(WorkerContext(job).classifier, Classifier)
