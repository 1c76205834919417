"""A pool of replicas in threads, and the queue of tasks that wait for them."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Condition, Thread, current_thread
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from memo_tta.durations import RecentDurations
from memo_tta.errors import MemoError
from memo_tta.service.api_errors import ApiError
from memo_tta.service.deadline import Cancelled, IsCancelled, never_cancelled
from memo_tta.service.memory import is_out_of_memory, recover_memory
from memo_tta.service.replica import Replica

CHECK_EVERY = 50  # tasks between two checks of a replica's weights
IDLE_SECONDS = 1.0  # after which a replica that has worked is checked too
RETRY_SECONDS = 1.0  # between two attempts to replace a replica for which there was no memory

Value = TypeVar("Value")
Work = Callable[[Replica, IsCancelled], Value]

log = logging.getLogger("memo_tta.service")


class QueuedTask(Generic[Value]):
    """Work that waits for a replica, with a future for its result."""

    def __init__(self, work: Work[Value]):
        self._work: Work[Value] | None = work
        self.future, self.is_cancelled = Future[Value](), False

    def run(self, replica: Replica) -> bool:
        """Run on the replica; return False after an unexpected exception, which may have changed it."""
        work, self._work = self._work, None
        if work is None or not self.future.set_running_or_notify_cancel():
            return True
        try:
            self.future.set_result(work(replica, lambda: self.is_cancelled))
            return True
        except BaseException as error:
            is_expected = isinstance(error, MemoError | ApiError | Cancelled)
            outcome = error if is_expected else ApiError.from_unexpected(error)
        # Its frames hold the request's image, and frames that wait for the future would hold them in a cycle.
        outcome.__traceback__ = outcome.__context__ = outcome.__cause__ = None
        self.future.set_exception(outcome)
        return is_expected


class Pool:
    """Threads with a replica each; they run in parallel because PyTorch computes without Python's lock."""

    def __init__(
        self, build_replica: Callable[[IsCancelled], Replica], replicas: int, threads: int, queue_size: int
    ):
        self._build_replica, self._threads, self._queue_size = build_replica, threads, queue_size
        self._queue: deque[QueuedTask[Any]] = deque()
        self._changed = Condition()  # guards the queue, the counts and the durations
        # Not daemons: a thread that is still inside PyTorch when Python exits would abort the process.
        self._workers = [Thread(target=self._work, name=f"replica {n}") for n in range(replicas)]
        self._durations = RecentDurations()
        self.n_alive, self.n_busy, self.n_replaced = 0, 0, 0  # replicas
        self._replicas: dict[Thread, Replica] = {}  # of each thread that has built one
        self.is_closing = False
        self.on_replaced: Callable[[], None] = lambda: None
        self.on_failed: Callable[[Exception], None] = lambda error: log.error(
            "cannot build a replica", exc_info=error
        )

    def start(self) -> None:
        """Start the threads; each builds its replica first."""
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Accept no new tasks, finish those in the queue, and wait until every thread has ended.

        A replica that is warming up stops at its next layer.
        """
        with self._changed:
            self.is_closing = True
            self._changed.notify_all()
        for worker in self._workers:
            if worker.is_alive():
                worker.join()

    @property
    def is_ready(self) -> bool:
        """Whether every replica has finished its warm-up predictions."""
        return self.n_alive == len(self._workers) and not self.is_closing

    @property
    def queue_depth(self) -> int:
        """The number of tasks that wait for a replica."""
        return len(self._queue)

    def fingerprints(self) -> list[str]:
        """Return the fingerprint of each replica, as of the last check of its weights."""
        with self._changed:
            return [replica.fingerprint for replica in self._replicas.values()]

    async def run(self, work: Work[Value]) -> Value:
        """Return the work's result from the next free replica; cancelling it frees its place or replica."""
        task = QueuedTask(work)
        with self._changed:
            self._check_capacity()
            self._queue.append(task)
            self._changed.notify()
        try:
            return await asyncio.wrap_future(task.future)
        finally:
            task.is_cancelled = True
            with self._changed:
                if task in self._queue:
                    self._queue.remove(task)
            del task  # holds the exception, whose traceback holds this frame

    def check_capacity(self) -> None:
        """Raise the ApiError that `run` would raise now, if any."""
        with self._changed:
            self._check_capacity()

    def _check_capacity(self) -> None:
        if self.is_closing:
            raise ApiError("stopping")
        if not self.n_alive:
            raise ApiError("starting")
        if len(self._queue) - (self.n_alive - self.n_busy) >= self._queue_size:
            seconds = math.ceil((self._durations.typical or 0.0) * len(self._queue) / self.n_alive)
            raise ApiError("busy", headers={"Retry-After": str(max(1, seconds))})

    def _work(self) -> None:
        """Build a replica and run tasks on it until the pool closes: the body of each thread."""
        torch.set_num_threads(min(self._threads, torch.get_num_threads()))  # OMP_NUM_THREADS may be lower
        try:
            replica = self._build_replica(lambda: self.is_closing)
            self._add_alive(replica)
            try:
                self._run_tasks(replica)
            finally:
                self._remove_alive()
        except Cancelled:  # the pool closed during the warm-up, or while there was no memory for a replica
            return
        except Exception as error:
            self.on_failed(error)

    def _run_tasks(self, replica: Replica) -> None:
        """Run tasks until the pool closes; check the weights now and then, after failures, and when idle."""
        unchecked = 0  # tasks since the last check
        while True:
            task = self._next_task(IDLE_SECONDS if unchecked else None)
            if task is None and not unchecked:
                return
            if task is None:
                replica, unchecked = self._replaced_if_changed(replica), 0
                continue
            with self._busy():
                is_as_expected = task.run(replica)
                del task  # frees its image
                unchecked += 1
                if not is_as_expected or unchecked == CHECK_EVERY:
                    replica, unchecked = self._replaced_if_changed(replica), 0

    def _add_alive(self, replica: Replica) -> None:
        with self._changed:
            self.n_alive += 1
            self._replicas[current_thread()] = replica

    def _remove_alive(self) -> None:
        """Count a replica out; the last one fails all tasks that still wait."""
        with self._changed:
            self.n_alive -= 1
            del self._replicas[current_thread()]
            while self._queue and not self.n_alive:
                future = self._queue.popleft().future
                if future.set_running_or_notify_cancel():
                    future.set_exception(ApiError("stopping"))

    def _next_task(self, timeout: float | None) -> QueuedTask[Any] | None:
        """Wait for the next task and count this replica as busy; return None if the pool closes first."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self.is_closing, timeout)
            if not self._queue:
                return None
            self.n_busy += 1
            return self._queue.popleft()

    @contextmanager
    def _busy(self) -> Generator[None]:
        """Measure the block, and count this replica as free after it."""
        started = perf_counter()
        try:
            yield
        finally:
            seconds = perf_counter() - started
            with self._changed:
                self.n_busy -= 1
                self._durations.add(seconds)

    def _replaced_if_changed(self, replica: Replica) -> Replica:
        """Return the replica, or a new one if its weights differ from the source's; wait if memory lacks."""
        while True:
            try:
                return replica if replica.is_intact else self._new_replica()
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                log.error("not enough memory to check or replace a replica: it waits")
                recover_memory()
            with self._changed:
                if self._changed.wait_for(lambda: self.is_closing, RETRY_SECONDS):
                    raise Cancelled

    def _new_replica(self) -> Replica:
        log.error("the weights of a replica differ from the source's: it is replaced")
        new = self._build_replica(never_cancelled)  # closing must not stop it: accepted tasks need it
        with self._changed:
            self._replicas[current_thread()] = new
            self.n_replaced += 1
        self.on_replaced()
        return new
