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

from memo_tta.workers.engine import Engine, FailedItem, Item, Result, Work, WorkerDied
from memo_tta.workers.malloc import keep_freed_memory


class Process:
    """A pool of one: if it breaks, no other work is lost with it."""

    def __init__(self, threads: int):
        # Forking a process that has threads, as torch and OpenMP have, can deadlock the child.
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, _begin, (threads,))
        self.pid = self.pool.submit(os.getpid)


class Processes(Engine[Process, "Future[Any]"]):
    """As many as there are cores, and as memory allows, unless told otherwise; one is this process."""

    def capacity(self, gib: float) -> int:
        return cap_by_memory(available_cores(), _memory_gib(), gib)

    def start_worker(self) -> tuple[Process, "Future[Any]"]:
        worker = Process(threads=max(1, available_cores() // self.size))
        return worker, worker.pid

    def submit(self, worker: Process, function: Callable[[Item], Any], item: Item) -> "Future[Any]":
        try:
            return worker.pool.submit(function, item)
        except BrokenProcessPool as error:  # it died while it had nothing to do
            lost: Future[Any] = Future()
            lost.set_exception(error)
            return lost

    def wait(self, handles: Sequence["Future[Any]"], seconds: float) -> Sequence["Future[Any]"]:
        return list(wait_for(handles, seconds, FIRST_COMPLETED).done)

    def result(self, handle: "Future[Any]") -> Any:
        try:
            return handle.result()
        except BrokenProcessPool:
            raise WorkerDied("its process ended: is there enough memory?") from None

    def stop_worker(self, worker: Process, busy: bool) -> None:
        if busy:
            with suppress(ProcessLookupError):
                os.kill(worker.pid.result(), signal.SIGKILL)
        # Without waiting, the end of Python may come upon a pipe that the pool is just closing.
        worker.pool.shutdown(wait=True, cancel_futures=True)

    def _run(
        self, work: Work[Item, Result], items: Iterable[Item], held: Sized
    ) -> Generator[tuple[int, Result | FailedItem[Item]], None, None]:
        self._fix_size(work.gib)
        return (InProcess() if self.size == 1 else super())._run(work, items, held)


class InProcess(Engine[None, Callable[[], Any]]):
    """One worker, this process: a handle is the work itself."""

    def capacity(self, gib: float) -> int:
        return 1

    def start_worker(self) -> tuple[None, Callable[[], Any]]:
        return None, lambda: None

    def submit(self, worker: None, function: Callable[[Item], Any], item: Item) -> Callable[[], Any]:
        return partial(function, item)

    def wait(self, handles: Sequence[Callable[[], Any]], seconds: float) -> Sequence[Callable[[], Any]]:
        return handles

    def result(self, handle: Callable[[], Any]) -> Any:
        return handle()

    def stop_worker(self, worker: None, busy: bool) -> None:
        return


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """function(item) of each item, in order, by workers that end with it."""
    with Processes(workers) as engine:
        yield from engine.ordered_results(function, items)


def available_cores() -> int:
    """As many as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cap_by_memory(workers: int, memory_gib: float, gib: float) -> int:
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
