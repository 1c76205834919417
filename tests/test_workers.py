"""Work in other processes: in order, once each as far as anyone can see, whatever dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memo_tta.errors import InputError, MemoError
from memo_tta.workers import ordered_map


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


def test_a_killed_worker_is_replaced_and_its_work_done_again(tmp_path):
    items = [(number, tmp_path / "died") for number in range(9)]
    assert list(ordered_map(die_once, items, 2)) == list(range(9))
    assert (tmp_path / "died").exists()


def test_work_that_kills_every_worker_ends_with_a_reason():
    with pytest.raises(MemoError, match="died 3 times at the same work: is there enough memory"):
        list(ordered_map(die, range(4), 2))


def test_an_error_in_a_worker_is_the_callers():
    with pytest.raises(InputError, match="picture 0: not an image"):
        list(ordered_map(refuse, range(4), 2))


def test_workers_share_the_cores_and_are_not_this_process():
    found = list(ordered_map(facts, range(8), 2))
    assert os.getpid() not in {pid for pid, _ in found}
    assert {threads for _, threads in found} == {str(max(1, len(os.sched_getaffinity(0)) // 2))}


PARENT = """
import time
from memo_tta.workers import ordered_map
from tests.test_workers import facts

if __name__ == "__main__":
    results = ordered_map(facts, range(1000), 2)
    print(next(results)[0], flush=True)
    time.sleep(60)
"""


def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(200):
        if not Path(f"/proc/{worker}").exists():
            return
        time.sleep(0.05)
    pytest.fail(f"worker {worker} outlived its parent")
