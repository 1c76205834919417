"""Work in other processes: results in order, retries, and workers that die."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from memo_tta.errors import InputError, MemoError
from memo_tta.workers import FailedItem, Processes, Work, ordered_map
from tests.conftest import ROOT


def square(number: int) -> int:
    return number * number


def slow_first(number: int) -> int:
    time.sleep(0.3 if number == 0 else 0)
    return number


def die_once(item: tuple[int, Path]) -> int:
    number, marker = item
    if number == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    os._exit(1)


def refuse(number: int) -> int:
    raise InputError(f"picture {number}: not an image")


def facts(_: int) -> tuple[int, str]:
    return os.getpid(), os.environ["OMP_NUM_THREADS"]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order(workers):
    assert list(ordered_map(square, range(20), workers)) == [number * number for number in range(20)]
    assert list(ordered_map(slow_first, range(6), workers)) == list(range(6))
    assert list(ordered_map(square, [], workers)) == []


def test_no_thread_is_left_for_the_end_of_python_to_come_upon():
    before = set(threading.enumerate())
    list(ordered_map(square, range(4), 2))
    assert set(threading.enumerate()) <= before
    with pytest.raises(InputError):
        list(ordered_map(refuse, range(4), 2))
    assert set(threading.enumerate()) <= before


def test_a_killed_worker_is_replaced_and_its_work_done_again(tmp_path):
    items = [(number, tmp_path / "died") for number in range(9)]
    assert list(ordered_map(die_once, items, 2)) == list(range(9))
    assert (tmp_path / "died").exists()


def test_work_that_kills_every_worker_ends_with_a_reason():
    with pytest.raises(MemoError, match=r"same task killed its worker 3 times \(.*is there enough memory"):
        list(ordered_map(die, range(4), 2))


def test_an_error_in_a_worker_is_the_callers():
    with pytest.raises(InputError, match=r"picture \d: not an image"):
        list(ordered_map(refuse, range(4), 2))


def test_workers_share_the_cores_and_are_not_this_process():
    found = list(ordered_map(facts, range(8), 2))
    assert os.getpid() not in {pid for pid, _ in found}
    assert {threads for _, threads in found} == {str(max(1, len(os.sched_getaffinity(0)) // 2))}


def wait_for(path: Path) -> None:
    for _ in range(1200):
        if path.exists():
            return
        time.sleep(0.05)
    raise TimeoutError(path)


def wait_for_file(path: Path | None) -> str:
    if path is not None:
        wait_for(path)
    return "waited" if path else "did not wait"


def test_what_is_done_first_comes_first(tmp_path):
    with Processes(2) as engine:
        results = engine.results(Work(wait_for_file), [tmp_path / "go", None])
        assert next(results) == "did not wait"
        (tmp_path / "go").touch()
        assert list(results) == ["waited"]


def test_nothing_waits_behind_what_is_long(tmp_path):
    work = Work(wait_for_file, is_long=lambda path: path is not None)
    with Processes(2) as engine:
        results = engine.results(work, [tmp_path / "go", *[None] * 9])
        assert [next(results) for _ in range(9)] == ["did not wait"] * 9
        (tmp_path / "go").touch()
        assert list(results) == ["waited"]


def refuse_five(numbers: range) -> list[int]:
    if 5 in numbers:
        raise ValueError("five")
    return list(numbers)


def die_of_five(numbers: range) -> list[int]:
    if 5 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
    return list(numbers)


@pytest.mark.parametrize(("function", "workers"), [(refuse_five, 1), (refuse_five, 2), (die_of_five, 2)])
def test_what_fails_is_split_and_its_bad_part_told(function, workers):
    units = [range(start, start + 4) for start in range(0, 16, 4)]
    work = Work(function, split=lambda unit: [range(number, number + 1) for number in unit])
    with Processes(workers) as engine:
        outcomes = list(engine.results(work, units))
    failed = [outcome for outcome in outcomes if isinstance(outcome, FailedItem)]
    assert [outcome.item for outcome in failed] == [range(5, 6)]
    done = [number for outcome in outcomes if not isinstance(outcome, FailedItem) for number in outcome]
    assert sorted(done) == [number for number in range(16) if number != 5]


@pytest.mark.parametrize("workers", [1, 2])
def test_no_more_is_taken_up_than_keeps_the_workers_busy(workers):
    taken = []
    items = (taken.append(number) or number for number in range(100))
    with Processes(workers) as engine:
        results = engine.results(Work(square), items)
        for done in range(1, 20):
            next(results)
            assert done <= len(taken) < done + 2 * workers
        results.close()


def test_workers_stay_from_one_lot_to_the_next():
    with Processes(2) as engine:
        first, second = ({pid for pid, _ in engine.ordered_results(facts, range(8))} for _ in range(2))
    assert second <= first


PARENT = """
import time
from memo_tta.workers import ordered_map
from tests.workers.test_workers import facts

if __name__ == "__main__":
    results = ordered_map(facts, range(1000), 2)
    print(next(results)[0], flush=True)
    time.sleep(60)
"""


def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(200):
        if not Path(f"/proc/{worker}").exists():
            return
        time.sleep(0.05)
    pytest.fail(f"worker {worker} outlived its parent")
