"""Workers that are processes of this machine, or the calling process itself."""

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_futures
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from typing import Any

from memo_tta.workers.cores import available_cores
from memo_tta.workers.engine import Engine, FailedItem, Item, Result, Work, WorkerDied
from memo_tta.workers.machine_memory import machine_memory_gib
from memo_tta.workers.malloc import keep_freed_memory
from memo_tta.workers.this_process import prepare_process


class WorkerProcess:
    """An executor with a single process, so that the tasks of other workers survive its death."""

    def __init__(self, threads: int):
        # Forking a process that has threads, as torch and OpenMP do, can deadlock the child.
        context = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(1, context, _initialize_worker, (threads,))
        self.pid = self.executor.submit(os.getpid)


class Processes(Engine[WorkerProcess, "Future[Any]"]):
    """Processes of this machine; by default one per core, as far as memory allows.

    A single worker is the calling process itself.
    """

    @property
    def memory_gib(self) -> float:
        return machine_memory_gib() / (self.workers or 1)

    def capacity(self, memory_gib: float) -> int:
        return cap_by_memory(available_cores(), machine_memory_gib(), memory_gib)

    def start_worker(self) -> tuple[WorkerProcess, "Future[Any]"]:
        worker = WorkerProcess(threads=max(1, available_cores() // self.pool_size))
        return worker, worker.pid

    def submit(self, worker: WorkerProcess, function: Callable[[Item], Any], item: Item) -> "Future[Any]":
        try:
            return worker.executor.submit(function, item)
        except BrokenProcessPool as error:  # the process died while it was idle
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def wait(self, handles: Sequence["Future[Any]"], timeout: float) -> Sequence["Future[Any]"]:
        return list(wait_for_futures(handles, timeout, FIRST_COMPLETED).done)

    def result(self, handle: "Future[Any]") -> Any:
        try:
            return handle.result()
        except BrokenProcessPool:
            raise WorkerDied("the worker process died: is there enough memory?") from None

    def stop_worker(self, worker: WorkerProcess, is_busy: bool) -> None:
        if is_busy:
            with suppress(ProcessLookupError):
                os.kill(worker.pid.result(), signal.SIGKILL)
        # Without waiting, the interpreter may exit while the executor's thread is closing its pipe.
        worker.executor.shutdown(wait=True, cancel_futures=True)

    def _run(
        self, work: Work[Item, Result], items: Iterable[Item], buffer: Sized
    ) -> Generator[tuple[int, Result | FailedItem[Item]]]:
        self._set_pool_size(work.memory_gib)
        return (InProcess() if self.pool_size == 1 else super())._run(work, items, buffer)


class InProcess(Engine[None, Callable[[], Any]]):
    """A single worker, which is the calling process: a handle is a call that `result` makes."""

    def capacity(self, memory_gib: float) -> int:
        return 1

    def start_worker(self) -> tuple[None, Callable[[], Any]]:
        return None, prepare_process

    def submit(self, worker: None, function: Callable[[Item], Any], item: Item) -> Callable[[], Any]:
        return partial(function, item)

    def wait(self, handles: Sequence[Callable[[], Any]], timeout: float) -> Sequence[Callable[[], Any]]:
        return handles

    def result(self, handle: Callable[[], Any]) -> Any:
        return handle()

    def stop_worker(self, worker: None, is_busy: bool) -> None:
        return


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Generator[Result]:
    """Yield function(item) of each item in order, computed by a pool of processes of its own."""
    with Processes(workers) as engine:
        yield from engine.ordered_results(function, items)


def cap_by_memory(workers: int, available_gib: float, gib_per_worker: float) -> int:
    """Reduce the number of workers to what memory allows, but to no less than one."""
    return workers if gib_per_worker == 0 else max(1, min(workers, int(available_gib / gib_per_worker)))


def _initialize_worker(threads: int) -> None:
    """Set up a new worker process, before anything that starts threads is imported."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    warnings.simplefilter("ignore")  # the parent has already shown them
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exit when the parent does: a parent that is killed cannot stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
