"""Work on a Ray cluster of two nodes gives the results of one process, even if workers or nodes die."""

import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import memo_tta as mt
from memo_tta.data.corruptions.generate import CorruptionJob, generate
from memo_tta.errors import ConfigError, DataError, InputError
from memo_tta.evaluation.driver import evaluate
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.store import FILE
from memo_tta.evaluation.tune import Search
from memo_tta.models.zoo import load
from memo_tta.workers import Processes, Work
from memo_tta.workers.environment import environment
from memo_tta.workers.ray import Ray
from tests.data.published import save_folder
from tests.data.test_generate import digests
from tests.evaluation.test_driver import DIE, OWN, count, files, poisoned, rows
from tests.workers.test_workers import wait_for

__all__ = ["files"]

pytestmark = pytest.mark.xdist_group("ray")  # one cluster is enough for two cores

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
REPEATS = 10 if SOAK else 1
POINTS = 60
METHODS = ("source", "tta", "bn1", "memo", "tent")  # tent is online
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
NODE |= {"include_log_monitor": False, "no_monitor": True}  # not needed here


@pytest.fixture(scope="module")
def cluster():
    """Start two nodes with a core each, with a token of their own instead of the user's."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_AUTH_MODE", "token")  # Ray reads these when it is imported
        environment.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = pytest.importorskip("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=NODE)
        try:
            cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()


@pytest.fixture(scope="module")
def engine(cluster):
    with Ray(address=cluster.address) as engine:
        yield engine


# Slow while FILE exists.
SLOW = """
class Slow(nn.Module):
    def forward(self, x):
        if os.path.exists("FILE"):
            time.sleep(0.03)
        return x
"""


@pytest.fixture(scope="module")
def job(files):
    text = "import os\nimport time\n" + OWN.replace("nn.Flatten()", "nn.Flatten(), Slow()")
    text = text.replace("\ndef build", SLOW.replace("FILE", f"{files}/slow") + "\ndef build")
    (files / "slow.py").write_text(text)
    options = {name: {"n_views": 4} for name in ("tta", "memo")} | {"tent": {"batch_size": 16}}
    model, data = f"{files}/slow.py:build", [str(files / "own.npz")]
    return EvaluationJob(data=data, model=model, methods=METHODS, options=options, limit=POINTS)


@pytest.fixture(scope="module")
def expected(job, tmp_path_factory):
    out = tmp_path_factory.mktemp("local") / "run"
    evaluate(job, out, Processes(1), silent)
    return rows(out)


def silent(*_: object) -> None:
    pass


class Midway:
    """A progress callback that calls an action once, when some but not all records are stored."""

    def __init__(self, action):
        self.action, self.happened = action, False

    def __call__(self, done, total, _errors):
        if not self.happened and 0 < done < total:
            self.happened = True
            self.action()


def test_records_are_those_of_one_process(engine, job, expected, tmp_path):
    model = tmp_path / "here.py"
    model.write_text(Path(job.model.removesuffix(":build")).read_text())

    def remove_model(*_):  # loaded here, before any worker needs it
        model.unlink(missing_ok=True)

    assert evaluate(replace(job, model=f"{model}:build"), tmp_path / "run", engine, remove_model).failed == []
    assert engine.pool_size == 2 and len(expected) == len(METHODS) * POINTS
    assert rows(tmp_path / "run") == expected


def meet(files: tuple[Path, Path]) -> int:
    mine, other = files
    mine.touch()
    wait_for(other)
    return os.getpid()


def gather_workers(engine, folder: Path) -> list[int]:
    """Wait until two workers have started; return their process ids."""
    a, b = folder / "first", folder / "second"
    pids = list(engine.results(Work(meet, is_long=lambda _: True), [(a, b), (b, a)]))
    assert len(set(pids)) == 2
    return pids


def kill_process(cluster, engine, pids):
    os.kill(pids[0], signal.SIGKILL)


def kill_actor(cluster, engine, pids):
    engine.ray.kill(engine._pool[0].worker)


def remove_node(cluster, engine, pids):
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


def test_a_run_broken_under_one_engine_is_finished_by_the_other(engine, job, expected, tmp_path):
    here, busy = Processes(1), list[object]()

    def interrupt():
        busy.extend(worker for worker in engine._pool if worker.tasks)
        raise KeyboardInterrupt

    gather_workers(engine, tmp_path)
    for first, second, out in ((engine, here, tmp_path / "a"), (here, engine, tmp_path / "b")):
        with pytest.raises(KeyboardInterrupt):
            evaluate(job, out, first, Midway(interrupt))
        assert busy and not set(busy) & set(engine._pool), "busy workers are stopped"
        assert 0 < len(rows(out)) < len(expected)
        evaluate(job, out, second, silent)
        assert rows(out) == expected


def test_a_point_that_kills_its_worker_is_set_aside(engine, tmp_path):
    poisoned(tmp_path, DIE)
    model, data = f"{tmp_path}/bad.py:build", [str(tmp_path / "bad.npz")]
    job = EvaluationJob(data=data, model=model, options={"memo": {"n_views": 2}})
    missing = evaluate(job, tmp_path / "run", engine, silent).failed
    assert {(row.method, row.position) for row in missing} == {("source", 13), ("memo", 13)}
    assert "failed 3 times: The actor died" in missing[0].reason and len(rows(tmp_path / "run")) == 58


def test_tuning_and_corrupting_give_what_they_give_here(engine, job, files, tmp_path):
    found = []
    for where in (Processes(1), engine):
        folder = tmp_path / type(where).__name__
        corrupted = CorruptionJob(job.data[0], folder / "c", ["contrast", "shot_noise"])
        generate(corrupted, where, silent)
        tuned = replace(job, methods=("memo",), options={"memo": {"n_views": 2}}, limit=2, severities=[3])
        trials = list(Search(tuned, folder / "trials", where, silent, 0.005).run(load(tuned.model)))
        found.append((trials, digests(folder / "c")))
    assert found[0] == found[1] and len(found[0][0]) in (12, 15)


def test_a_node_that_sees_something_else_is_named(cluster, engine):
    engine.check_nodes(lambda: {"/data": "a folder"})
    head = engine.ray.get_runtime_context().get_node_id()

    def probe():
        import ray

        return {"/data": "a folder" if ray.get_runtime_context().get_node_id() == head else "missing"}

    with pytest.raises(
        DataError, match=r"^node [\d.]+ \(.+\): /data is missing, here it is a folder: every node"
    ) as e:
        engine.check_nodes(probe)
    assert str(e.value).count("node ") == 2  # one node, and the advice


def test_an_error_on_a_node_is_the_users_with_its_name(engine):
    def refuse(item):
        raise InputError("cat.png: not an image")

    with pytest.raises(InputError, match=r"cat.png: not an image \(on node [\d.]+\)"):
        list(engine.results(Work(refuse), [1]))


def test_too_much_is_not_waited_for(cluster, engine):
    wanted = Ray(num_cpus=9)
    with wanted, pytest.raises(ConfigError, match="no node of the cluster has 9 CPUs: lower --num-cpus"):
        list(wanted.results(Work(len), ["a"]))


@pytest.mark.skipif(not SOAK, reason="starts Ray itself, twice: for `make soak`")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_is_finished_without_ray(cluster, memo, job, files, tmp_path, end):
    out = tmp_path / "run"
    arguments = ["evaluate", *job.data, "--model", job.model, "--methods", "source,memo", "--out", out]
    (files / "slow").touch()
    command = [sys.executable, "-m", "memo_tta", *map(str, arguments), "--engine", "ray", "--workers", "2"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as run:
        while not ((out / FILE).exists() and count(out / FILE)):
            time.sleep(0.05)
            assert run.poll() is None
        os.killpg(run.pid, end)  # as a terminal does
        _, err = run.communicate()
    (files / "slow").unlink()
    assert run.returncode == (130 if end is signal.SIGINT else -end)
    assert "Traceback" not in err and "ray" not in err
    assert 0 < len(rows(out)) < 180
    assert memo(*arguments, "--workers", 1)[0] == 0 and len(rows(out)) == 180


@pytest.mark.parametrize("command", ["evaluate", "tune", "corrupt"])
def test_without_ray_the_command_says_how_to_get_it(memo, job, tmp_path, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = [command, job.data[0], "--out", tmp_path / "out"]
    arguments += [] if command == "corrupt" else ["--model", job.model]
    code, _, err = memo(*arguments, "--engine", "ray", "--address", "head:6379")
    assert (code, err.splitlines()[-1]) == (1, "memo: ray is not installed: pip install 'memo-tta[ray]'")
    assert not list(tmp_path.iterdir())
    for option in (("--num-cpus", 2), ("--address", "auto")):
        code, _, err = memo(*arguments, *option)
        assert code == 2 and "only with --engine ray" in err


def test_nodes_are_asked_for_the_data_and_what_is_installed(job, tmp_path):
    asked = list[dict[str, str]]()

    class Asking(Processes):
        def check_nodes(self, probe):
            asked.append(probe())

    folder, out = tmp_path / "pictures", tmp_path / "out"
    save_folder(folder, ["a/1.png", "b/1.png"], 32)
    evaluate(replace(job, methods=("source",)), tmp_path / "run", Asking(1), silent)
    generate(CorruptionJob(job.data[0], tmp_path / "arrays", ["contrast"]), Asking(1), silent)
    generate(CorruptionJob(str(folder), out, ["contrast"]), Asking(1), silent)
    file = {job.data[0]: f"a file of {Path(job.data[0]).stat().st_size} bytes"}
    with_views = file | {"views": "compiled"}  # methods may draw views, corruptions do not
    everywhere = {"memo-tta": mt.__version__, "torch": torch.__version__, "numpy": np.__version__}
    for found, paths in zip(
        asked, [with_views, file, dict.fromkeys(map(str, (folder, out)), "a folder")], strict=True
    ):
        assert found.pop("frost") in ("photographs", "procedural") and found == paths | everywhere
    (tmp_path / "mount").mkdir()
    found = environment([tmp_path / "mount", tmp_path / "absent"])
    assert list(found.values())[:2] == ["an empty folder", "missing"]


# The last disaster leaves the cluster with one node.
@pytest.mark.parametrize("disaster", [*[kill_process, kill_actor] * REPEATS, remove_node])
def test_what_dies_loses_and_doubles_nothing(cluster, engine, job, expected, files, tmp_path, disaster):
    pids = gather_workers(engine, tmp_path)
    busy = list[object]()

    def strike():
        busy.extend(worker for worker in engine._pool if worker.tasks)
        (files / "slow").touch()  # a worker runs on for a moment after its node has died
        disaster(cluster, engine, pids)

    assert evaluate(job, tmp_path / "run", engine, Midway(strike)).failed == []
    (files / "slow").unlink()
    assert len(busy) == 2 and len(set(busy) & set(engine._pool)) == 1, "one worker died"
    assert rows(tmp_path / "run") == expected
