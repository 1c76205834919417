"""How long work shows itself: a bar on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

SECONDS_BETWEEN_LINES = 10


class Update(Protocol):
    """Says how many of how many are done, and how it goes. The rate counts from the first call on."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def progress(units: str) -> Iterator[Update]:
    console = Console(stderr=True)
    pace = Pace(units)
    if not console.is_terminal:
        yield _lines(console, pace)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def update(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=total, description=f"{pace(done, total)} {note}")

        yield update


def _lines(console: Console, pace: "Pace") -> Update:
    last = monotonic()

    def update(done: int, total: int, note: str = "") -> None:
        nonlocal last
        text = pace(done, total)
        if done < total and monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = monotonic()
            console.print(f"{done} of {total} {text} {note}".rstrip(), soft_wrap=True)

    return update


class Pace:
    """Rate and time left, counted from the first call: work that was resumed was not done now."""

    def __init__(self, units: str):
        self.units = units
        self.start: tuple[float, int] | None = None

    def __call__(self, done: int, total: int) -> str:
        if self.start is None:
            self.start = monotonic(), done
        began, before = self.start
        rate = (done - before) / max(monotonic() - began, 1e-9)
        if rate <= 0:
            return self.units
        left = round((total - done) / rate)
        return f"{self.units} · {rate:.1f}/s · {left // 60}:{left % 60:02d} left"
