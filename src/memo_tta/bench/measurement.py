"""Measure so that other load on the machine affects both sides: in turns, within one run."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """A measured value, lower is better, and the bar that it should not exceed."""

    name: str
    measured: float
    bar: float | None
    unit: str
    detail: str  # how it was measured, and the absolute values behind a ratio

    @property
    def holds(self) -> bool:
        """Whether the measurement does not exceed its bar, if it has one."""
        return self.bar is None or self.measured <= self.bar


def interleaved(rounds: int, **actions: Callable[[], object]) -> dict[str, list[float]]:
    """Return the seconds of each action in each round; the actions take turns, after one warm-up each."""
    for action in actions.values():
        action()
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            began = perf_counter()
            action()
            seconds[name].append(perf_counter() - began)
    return seconds


def ratio(seconds: dict[str, list[float]], ours: str, baseline: str) -> float:
    """Return the median over the rounds of the ratio of two actions."""
    return median(a / b for a, b in zip(seconds[ours], seconds[baseline], strict=True))


def peak_kib() -> int:
    """Return the peak memory of this process; getrusage would include the peak inherited from the parent."""
    return status_kib("VmHWM")


def status_kib(name: str) -> int:
    """Return a value in KiB from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def in_new_process(module: str, *arguments: object) -> Any:
    """Run a module with these arguments in a new process; return the JSON that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, check=True)
    return json.loads(process.stdout)
