"""Replicas and the requests that wait for them."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from threading import Condition, Thread
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from memo_tta.errors import MemoError
from memo_tta.service.api_errors import ApiError
from memo_tta.service.deadline import Cancelled
from memo_tta.service.replica import IsWanted, Replica

CHECK_EVERY = 50  # requests between two looks at a replica's weights
PACE = 0.1  # of a new duration on the average one

Value = TypeVar("Value")
Work = Callable[[Replica, IsWanted], Value]

log = logging.getLogger("memo_tta.service")


class QueuedTask(Generic[Value]):
    """Work that waits for a replica, has one to itself, and ends in a future."""

    def __init__(self, work: Work[Value]):
        self._work, self.future, self.wanted = work, Future[Value](), True

    def run(self, replica: Replica) -> bool:
        """Whether it ended as work may end; after anything else the replica deserves a look."""
        if not self.future.set_running_or_notify_cancel():
            return True
        try:
            self.future.set_result(self._work(replica, lambda: self.wanted))
        except (MemoError, Cancelled) as error:
            self.future.set_exception(error)
        except BaseException as error:
            self.future.set_exception(error)
            return False
        return True


class Pool:
    """Threads with a replica each: PyTorch computes without Python's lock, so they run side by side."""

    def __init__(self, build: Callable[[IsWanted], Replica], replicas: int, threads: int, queue_size: int):
        self._build, self._threads, self._places = build, threads, queue_size
        self._waiting: deque[QueuedTask[Any]] = deque()
        self._changed = Condition()
        # Not daemons: a thread that is still inside PyTorch when Python ends would abort the process.
        self._workers = [Thread(target=self._serve, name=f"replica {n}") for n in range(replicas)]
        self._pace = 0.0
        self.alive, self.busy, self.replaced = 0, 0, 0
        self.closing = False
        self.on_replaced: Callable[[], None] = lambda: None
        self.on_failed: Callable[[Exception], None] = lambda error: log.error(
            "a replica cannot be built", exc_info=error
        )

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Take nothing new, finish what was accepted, and wait until every thread has ended.

        A replica that is warming up stops at its next layer.
        """
        with self._changed:
            self.closing = True
            self._changed.notify_all()
        for worker in self._workers:
            if worker.is_alive():
                worker.join()

    @property
    def is_ready(self) -> bool:
        """Whether every replica has made its warm-up predictions."""
        return self.alive == len(self._workers) and not self.closing

    @property
    def depth(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    async def run(self, work: Work[Value]) -> Value:
        """The work's result, from the next free replica; cancelled, it gives its place or replica free."""
        job = QueuedTask(work)
        self._accept(job)
        try:
            return await asyncio.wrap_future(job.future)
        finally:
            job.wanted = False
            with self._changed:
                if job in self._waiting:
                    self._waiting.remove(job)

    def check_room(self) -> None:
        """Refuses what `run` would refuse now."""
        with self._changed:
            self._check_room()

    def _accept(self, job: QueuedTask[Any]) -> None:
        with self._changed:
            self._check_room()
            self._waiting.append(job)
            self._changed.notify()

    def _check_room(self) -> None:
        if self.closing:
            raise ApiError("stopping")
        if not self.alive:
            raise ApiError("starting")
        if len(self._waiting) - (self.alive - self.busy) >= self._places:
            seconds = math.ceil(self._pace * len(self._waiting) / self.alive)
            raise ApiError("busy", headers={"Retry-After": str(max(1, seconds))})

    def _serve(self) -> None:
        torch.set_num_threads(min(self._threads, torch.get_num_threads()))  # OMP_NUM_THREADS may say less
        try:
            replica = self._build(lambda: not self.closing)
            self._enter()
            try:
                for served in count(1):
                    job = self._take()
                    if job is None:
                        return
                    with self._occupied():
                        was_usual = job.run(replica)
                        del job  # and the image that it holds
                        if not was_usual or served % CHECK_EVERY == 0:
                            replica = self._checked(replica)
            finally:
                self._leave()
        except Cancelled:  # the pool was closed before it was warm
            return
        except Exception as error:
            self.on_failed(error)

    def _enter(self) -> None:
        with self._changed:
            self.alive += 1

    def _leave(self) -> None:
        with self._changed:
            self.alive -= 1
            while self._waiting and not self.alive:
                future = self._waiting.popleft().future
                if future.set_running_or_notify_cancel():
                    future.set_exception(ApiError("stopping"))

    def _take(self) -> QueuedTask[Any] | None:
        """The job that waited longest; None if no more can come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closing)
            if not self._waiting:
                return None
            self.busy += 1
            return self._waiting.popleft()

    @contextmanager
    def _occupied(self) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        finally:
            seconds = perf_counter() - began
            with self._changed:
                self.busy -= 1
                self._pace += PACE * (seconds - self._pace) if self._pace else seconds

    def _checked(self, replica: Replica) -> Replica:
        """The replica, or a new one if its weights are not the source's."""
        if replica.is_intact:
            return replica
        log.error("the weights of a replica are not the source's: it is replaced")
        self.replaced += 1
        self.on_replaced()
        return self._build(lambda: True)  # also while closing: those who wait were accepted
