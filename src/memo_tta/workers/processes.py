"""Workers that are processes of this machine, or this process itself."""

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache, partial
from typing import Any

from memo_tta.workers.allocation import keep_freed_memory
from memo_tta.workers.engine import Engine, Failed, Item, Result, Work, WorkerDied


class Process:
    """A pool of one: if it breaks, no other work is lost with it."""

    def __init__(self, threads: int):
        # Forking a process that has threads, as torch and OpenMP have, can deadlock the child.
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, _begin, (threads,))
        self.pid = self.pool.submit(os.getpid)


class Processes(Engine[Process, "Future[Any]"]):
    """As many as there are cores, and as memory allows, unless told otherwise; one is this process."""

    def room(self, gib: float) -> int:
        return within_memory(default_workers(), _memory_gib(), gib)

    def hire(self) -> tuple[Process, "Future[Any]"]:
        worker = Process(threads=max(1, default_workers() // self.size))
        return worker, worker.pid

    def hand(self, worker: Process, function: Callable[[Item], Any], item: Item) -> "Future[Any]":
        try:
            return worker.pool.submit(function, item)
        except BrokenProcessPool as error:  # it died while it had nothing to do
            lost: Future[Any] = Future()
            lost.set_exception(error)
            return lost

    def wait(self, tickets: Sequence["Future[Any]"], seconds: float) -> Sequence["Future[Any]"]:
        return list(wait_for(tickets, seconds, FIRST_COMPLETED).done)

    def result(self, ticket: "Future[Any]") -> Any:
        try:
            return ticket.result()
        except BrokenProcessPool:
            raise WorkerDied("its process ended: is there enough memory?") from None

    def fire(self, worker: Process, busy: bool) -> None:
        if busy:
            with suppress(ProcessLookupError):
                os.kill(worker.pid.result(), signal.SIGKILL)
        # Without waiting, the end of Python may come upon a pipe that the pool is just closing.
        worker.pool.shutdown(wait=True, cancel_futures=True)

    def _run(
        self, work: Work[Item, Result], items: Iterable[Item], held: Sized
    ) -> Generator[tuple[int, Result | Failed[Item]], None, None]:
        self._settle(work.gib)
        return (Here() if self.size == 1 else super())._run(work, items, held)


class Here(Engine[None, Callable[[], Any]]):
    """One worker, this process: a ticket is the work itself."""

    def room(self, gib: float) -> int:
        return 1

    def hire(self) -> tuple[None, Callable[[], Any]]:
        return None, lambda: None

    def hand(self, worker: None, function: Callable[[Item], Any], item: Item) -> Callable[[], Any]:
        return partial(function, item)

    def wait(self, tickets: Sequence[Callable[[], Any]], seconds: float) -> Sequence[Callable[[], Any]]:
        return tickets

    def result(self, ticket: Callable[[], Any]) -> Any:
        return ticket()

    def fire(self, worker: None, busy: bool) -> None:
        return


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """function(item) of each item, in order, by workers that end with it."""
    with Processes(workers) as engine:
        yield from engine.in_order(function, items)


def default_workers() -> int:
    """As many as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def within_memory(workers: int, memory_gib: float, gib: float) -> int:
    """So many, or as many as have `gib` each, but not none."""
    return workers if gib == 0 else max(1, min(workers, int(memory_gib / gib)))


@cache
def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _begin(threads: int) -> None:
    """In a new worker, before anything that has threads is imported."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    warnings.simplefilter("ignore")  # what is said once is said by the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, so they watch it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
