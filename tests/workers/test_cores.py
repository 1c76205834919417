"""Free cores: counted from what the kernel says about each core."""

import subprocess
import sys

import pytest

from memo_tta.workers.cores import available_cores, count_free, free_cores, parse_times

STAT = """cpu  20 0 20 160 0 0 0 0 0 0
cpu0 10 0 10 70 10 0 0 0 0 0
cpu1 10 0 10 80 0 0 0 0 0 0
cpu2 50 0 0 0 0 0 0 0 0 0
intr 123
"""


def test_times_are_idle_and_all_of_the_cores_that_may_be_used():
    assert parse_times(STAT, {0, 1}) == {0: (80, 100), 1: (80, 100)}


@pytest.mark.parametrize(
    ("idle", "expected"), [((10, 10), 2), ((10, 0), 1), ((0, 0), 1), ((9, 8), 2), ((4, 4), 1)]
)
def test_idle_cores_are_free(idle, expected):
    before = dict.fromkeys(range(2), (100, 1000))
    after = {core: (100 + units, 1010) for core, units in enumerate(idle)}
    assert count_free(before, after) == expected


def test_without_readings_nothing_is_known():
    assert count_free({}, {}) == 0
    assert count_free({0: (1, 1)}, {1: (1, 1)}) == 0


def test_there_is_always_a_core_and_never_more_than_there_are():
    assert 1 <= free_cores() <= available_cores()


def test_threads_follow_free_cores_unless_the_user_has_chosen():
    script = (
        "import torch; from memo_tta.workers import prepare_process, this_process\n"
        "this_process.free_cores = lambda: 1\n"
        "prepare_process(); print(torch.get_num_threads())"
    )

    def threads(**environment: str) -> str:
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()

    assert threads() == "1"
    assert threads(OMP_NUM_THREADS="2") == "2"
