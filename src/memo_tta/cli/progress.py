"""How long work shows itself: a bar on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10


@contextmanager
def progress(total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number of things just done."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"{unit}s · {{task.fields[rate]}} · left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task, started, done = bar.add_task("", total=total, rate=""), monotonic(), 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                bar.update(task, advance=count, rate=_rate(done, started, unit))

            yield advance
    else:
        yield _lines(console, total, unit)


def _lines(console: Console, total: int, unit: str) -> Callable[[int], None]:
    started = last = monotonic()
    done = 0

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        if done < total and monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = monotonic()
            left = (total - done) * (last - started) / done
            console.print(f"{done} of {total} {unit}s, {_rate(done, started, unit)}, {left:.0f} s left")

    return advance


def _rate(done: int, started: float, unit: str) -> str:
    return f"{done / max(monotonic() - started, 1e-9):.1f} {unit}s/s"
