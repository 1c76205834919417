"""How things are measured: interleaved, medians, ratios; what a machine does meanwhile hits both sides."""

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
    """What was measured, and the bar that it must not pass, if there is one."""

    name: str
    measured: float
    bar: float | None
    unit: str
    detail: str

    @property
    def holds(self) -> bool:
        return self.bar is None or self.measured <= self.bar


def interleaved(rounds: int, **actions: Callable[[], object]) -> dict[str, list[float]]:
    """Seconds of each action, round by round, taking turns after one warm-up each."""
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
    """Median over the rounds: the two sides of a round see the same machine."""
    return median(a / b for a, b in zip(seconds[ours], seconds[baseline], strict=True))


def peak_kib() -> int:
    """Of this process; getrusage would count the parent's peak too, which a child inherits."""
    return status_kib("VmHWM")


def status_kib(name: str) -> int:
    """What the kernel says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def in_new_process(module: str, *words: object) -> Any:
    """Return what a module prints as JSON when it is run with these words."""
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, capture_output=True, check=True)
    return json.loads(done.stdout)
