"""Work spread over processes: results in order, and a worker that dies is replaced."""

import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from memo_tta.errors import MemoError

Item = TypeVar("Item")
Result = TypeVar("Result")

TRIES = 3
AHEAD = 2  # items handed out per worker, so that none waits for the next


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """function(item) of each item, in order; what a dead worker had in hand is done again.

    One worker is this process. The function and the items must be picklable, and doing an item twice
    must do no harm.
    """
    if workers == 1:
        yield from map(function, items)
        return
    source, handed = iter(items), deque[tuple[Item, Future[Result]]]()
    deaths, pool = 0, _pool(workers)
    try:
        while True:
            try:
                for item in source:
                    handed.append((item, Future()))
                    handed[-1] = (item, pool.submit(function, item))
                    if len(handed) >= AHEAD * workers:
                        break
                if not handed:
                    return
                result = handed[0][1].result()
            except BrokenProcessPool:
                deaths += 1
                if deaths == TRIES:
                    raise MemoError(
                        f"workers: one died {TRIES} times at the same work: is there enough memory?"
                    ) from None
                pool.shutdown(wait=False)
                pool = _pool(workers)
                handed = deque((item, pool.submit(function, item)) for item, _ in handed)
                continue
            deaths = 0
            handed.popleft()
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def default_workers() -> int:
    """As many as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pool(workers: int) -> ProcessPoolExecutor:
    threads = max(1, default_workers() // workers)
    # Forking a process that has threads, as torch and OpenMP have, can deadlock the child.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, _begin, (threads,))


def _begin(threads: int) -> None:
    """In a new worker, before anything that has threads is imported."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    warnings.simplefilter("ignore")  # what is said once is said by the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, so they watch it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
