"""How many CPU cores this process may use, and how many of them nobody else is using."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from time import sleep

INTERVAL = 0.1  # seconds; the kernel counts in hundredths
STAT = Path("/proc/stat")
IDLE = slice(3, 5)  # the columns idle and iowait of a core's line


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_cores() -> int:
    """Return how many of the available cores are idle now, but at least one; all of them if unknown."""
    try:
        cores = os.sched_getaffinity(0)
        before = parse_times(STAT.read_text(), cores)
        sleep(INTERVAL)
        after = parse_times(STAT.read_text(), cores)
    except (OSError, AttributeError):  # not Linux
        return available_cores()
    return count_free(before, after) or available_cores()


Times = Mapping[int, tuple[int, int]]  # of each core: idle time and all time, in the kernel's units


def count_free(before: Times, after: Times) -> int:
    """Return the number of idle cores between two readings, rounded, at least 1; 0 if nothing was read."""
    if not before or before.keys() != after.keys():
        return 0
    free = 0.0
    for core, (idle, total) in after.items():
        idle_before, total_before = before[core]
        free += (idle - idle_before) / max(total - total_before, 1)
    return max(1, round(free))


def parse_times(stat: str, cores: Collection[int]) -> Times:
    times: dict[int, tuple[int, int]] = {}
    for line in stat.splitlines():
        name, *columns = line.split()
        number = name.removeprefix("cpu")
        if number.isdecimal() and int(number) in cores:
            counts = [int(column) for column in columns]
            times[int(number)] = sum(counts[IDLE]), sum(counts)
    return times
