"""Progress of long work: a bar on a terminal, one changing line in a notebook, plain lines elsewhere."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from memo_tta.durations import RecentDurations

SECONDS_BETWEEN_LINES = 10
SECONDS_BETWEEN_CHANGES = 0.25  # of the line in a notebook
BURST_SECONDS = 0.5  # updates this close together belong to one repetition


class ProgressUpdate(Protocol):
    """Shows how many items are done, and a note; resumed items are done at the first call."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def progress(units: str) -> Generator[ProgressUpdate]:
    """Yield the function that shows progress on stderr, or below the cell of a notebook."""
    console = Console(stderr=True)
    estimate = RateEstimate(units)
    if console.is_jupyter:
        yield _change_line(estimate)
        return
    if not console.is_terminal:
        yield _print_lines(console, estimate)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def update(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=total, description=f"{estimate(done, total)} {note}")

        yield update


def _change_line(estimate: "RateEstimate") -> ProgressUpdate:
    show = import_module("IPython.display").display
    line: Any = None  # appears with the first update, below what was shown before
    last_change = 0.0

    def update(done: int, total: int, note: str = "") -> None:
        nonlocal line, last_change
        text = f"{done} of {total} {estimate(done, total)} · {note}"
        if done == total:
            text = f"{total} {estimate.units} · {note}"
        elif line is not None and monotonic() - last_change < SECONDS_BETWEEN_CHANGES:
            return
        last_change, content = monotonic(), {"text/plain": text.rstrip(" ·")}
        if line is None:
            line = show(content, raw=True, display_id=True)
        else:
            line.update(content, raw=True)

    return update


def _print_lines(console: Console, estimate: "RateEstimate") -> ProgressUpdate:
    last_line = monotonic()

    def update(done: int, total: int, note: str = "") -> None:
        nonlocal last_line
        text = estimate(done, total)
        if done < total and monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = monotonic()
            console.print(f"{done} of {total} {text} {note}".rstrip(), soft_wrap=True)

    return update


class RateEstimate:
    """Rate and time left, from the recent seconds per item.

    Items often finish in bursts, so one repetition lasts from the end of a burst to the end of the next.
    """

    def __init__(self, units: str):
        self.units = units
        self._durations = RecentDurations()
        self._start: tuple[float, int] | None = None  # time and items done when the repetition began
        self._latest = (0.0, 0)  # time and items done at the latest update
        self._burst = 0.0  # time of the first update of the current burst

    def __call__(self, done: int, total: int) -> str:
        """Record that `done` items are done now; return units, rate and time left as text."""
        self._record(monotonic(), done)
        seconds = self._seconds_per_item()
        if not seconds:
            return self.units
        left = round((total - done) * seconds)
        return f"{self.units} · {1 / seconds:.1f}/s · {left // 60}:{left % 60:02d} left"

    def _record(self, now: float, done: int) -> None:
        if self._start is None or done < self._latest[1]:  # the count restarts with the next file
            self._start = self._latest = (now, done)
        if done == self._latest[1]:
            return
        if self._latest == self._start:
            self._burst = now
        elif now - self._burst >= BURST_SECONDS:
            self._durations.add(_per_item(self._start, self._latest))
            self._start, self._burst = self._latest, now
        self._latest = (now, done)

    def _seconds_per_item(self) -> float | None:
        """Return the estimate, or that of the first repetition while it lasts, or None before any."""
        if (typical := self._durations.typical) is not None:
            return typical
        if self._start is None or self._latest[0] - self._start[0] < BURST_SECONDS:
            return None
        return _per_item(self._start, self._latest)


def _per_item(start: tuple[float, int], end: tuple[float, int]) -> float:
    return (end[0] - start[0]) / (end[1] - start[1])
