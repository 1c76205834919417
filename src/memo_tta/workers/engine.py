"""Schedule tasks on a pool of workers: retry tasks that fail, replace workers that die."""

import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Self, TypeVar

from memo_tta.errors import MemoError, MemoWarning

Item = TypeVar("Item")
Result = TypeVar("Result")
Worker = TypeVar("Worker")
Handle = TypeVar("Handle")

MAX_TRIES = 3
TASKS_PER_WORKER = 2  # one that runs and one queued behind it, so that the worker never idles
START_TIMEOUT = 60.0  # seconds without any started worker after which the user is warned


class WorkerDied(MemoError):
    """A worker ended before its task was done."""


@dataclass(frozen=True)
class FailedItem(Generic[Item]):
    """An item that failed MAX_TRIES times, with the last error."""

    item: Item
    error: Exception


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """A function to call with each item, and what the scheduler needs to know about the items.

    Function and items must be picklable. A call may be repeated, so it must be idempotent.
    """

    function: Callable[[Item], Result]
    split: Callable[[Item], Sequence[Item]] = lambda item: [item]  # cuts a failed item for the retry
    is_long: Callable[[Item], bool] = lambda _: False  # a long item shares no worker's queue
    memory_gib: float = 0.0  # needed by each worker; 0: negligible


@dataclass(frozen=True)
class Task(Generic[Item]):
    """An item, or a part of one after a split; parts keep the item's index and count its failures."""

    index: int
    item: Item
    failures: int = 0


class PoolWorker(Generic[Worker, Handle]):
    """A worker of the pool with the tasks submitted to it, oldest first."""

    def __init__(self, worker: Worker, start_handle: Handle):
        self.worker = worker
        self.start_handle: Handle | None = start_handle  # None once the worker has started
        self.tasks = deque[tuple[Task[Any], Handle]]()

    @property
    def is_starting(self) -> bool:
        return self.start_handle is not None

    @property
    def next_handle(self) -> Handle | None:
        """Return the handle that finishes next: the start, or the oldest task; None if idle."""
        if self.start_handle is not None:
            return self.start_handle
        return self.tasks[0][1] if self.tasks else None


class Engine(ABC, Generic[Worker, Handle]):
    """A pool of workers that lives until the `with` block ends, and the loop that schedules work on it.

    Each worker has at most two tasks submitted and runs them in order, so when it dies, the oldest one is
    blamed; the other is queued again, and the worker is replaced. A task is tried three times; one that can
    be split is split after two failures, into parts that are tried twice. A MemoError raised by the function
    is for the user to solve, so the caller gets it at once.
    """

    device = "cpu"  # where workers keep their models

    def __init__(self, workers: int | None = None):
        self.workers = workers
        self.pool_size = 0  # 0 until the first work, whose need of memory may limit it
        self._pool: list[PoolWorker[Worker, Handle]] = []
        self._failed_starts = 0  # in a row

    @property
    def memory_gib(self) -> float | None:
        """The most memory that one worker may take; None if it is not known."""
        return None

    @abstractmethod
    def capacity(self, memory_gib: float) -> int:
        """Return the default number of workers, when each needs this much memory."""

    @abstractmethod
    def start_worker(self) -> tuple[Worker, Handle]:
        """Start a worker; return it with a handle that is done once the worker can take tasks."""

    @abstractmethod
    def submit(self, worker: Worker, function: Callable[[Item], Any], item: Item) -> Handle:
        """Queue function(item) on the worker; return a handle to the result."""

    @abstractmethod
    def wait(self, handles: Sequence[Handle], timeout: float) -> Sequence[Handle]:
        """Wait until at least one handle is done or `timeout` seconds have passed; return those done."""

    @abstractmethod
    def result(self, handle: Handle) -> Any:
        """Return the result of a done handle; raise WorkerDied, or what the function raised."""

    @abstractmethod
    def stop_worker(self, worker: Worker, is_busy: bool) -> None:
        """Stop a worker and drop its tasks; it is busy if it has any."""

    def share(self, key: str, value: Result) -> Callable[[], Result] | None:
        """Return a function with which workers fetch the value; None if they have to make their own."""
        return None

    def check_nodes(self, probe: Callable[[], dict[str, str]]) -> None:
        """Raise unless `probe` returns the same on every node that may run workers as it does here."""
        return

    def results(
        self, work: Work[Item, Result], items: Iterable[Item]
    ) -> Generator[Result | FailedItem[Item]]:
        """Yield the outcome of each item, in the order in which they finish."""
        for _, outcome in self._run(work, items, ()):
            yield outcome

    def ordered_results(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result]:
        """Yield function(item) of each item in order; raise the error of an item that keeps failing."""
        early = dict[int, Result | FailedItem[Item]]()  # finished before an item that precedes them
        next_index = 0
        for index, outcome in self._run(Work(function), items, early):
            early[index] = outcome
            while next_index in early:
                outcome = early.pop(next_index)
                if isinstance(outcome, FailedItem):
                    raise _final_error(outcome.error)
                yield outcome
                next_index += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop(list(self._pool))

    def _set_pool_size(self, memory_gib: float) -> None:
        self.pool_size = self.pool_size or self.workers or self.capacity(memory_gib)

    def _run(
        self, work: Work[Item, Result], items: Iterable[Item], buffer: Sized
    ) -> Generator[tuple[int, Result | FailedItem[Item]]]:
        """Yield the index and the outcome of each item as they finish.

        An item is read only while fewer than two per worker are queued, submitted, or in `buffer`, where the
        caller keeps outcomes that it cannot use yet.
        """
        self._set_pool_size(work.memory_gib)
        indexed_items = enumerate(items)
        queue = deque[Task[Item]]()
        try:
            while True:
                unfinished = len(queue) + self._submitted() + len(buffer)
                wanted = max(0, TASKS_PER_WORKER * self.pool_size - unfinished)
                queue.extend(Task(index, item) for index, item in islice(indexed_items, wanted))
                self._start_missing_workers(len(queue))
                self._submit_queued(work, queue)
                if not queue and not self._submitted():
                    return
                for pool_worker in self._wait_for_any():
                    yield from self._collect(pool_worker, work, queue)
        finally:
            self._stop([pool_worker for pool_worker in self._pool if pool_worker.tasks])

    def _submitted(self) -> int:
        """Count the tasks that workers have."""
        return sum(len(pool_worker.tasks) for pool_worker in self._pool)

    def _start_missing_workers(self, queued: int) -> None:
        while len(self._pool) < min(self.pool_size, queued + self._submitted()):
            self._pool.append(PoolWorker(*self.start_worker()))

    def _submit_queued(self, work: Work[Item, Any], queue: deque[Task[Item]]) -> None:
        """Submit queued tasks, one to every worker before a second one to any."""
        starting = sum(pool_worker.is_starting for pool_worker in self._pool)
        for depth in range(TASKS_PER_WORKER):
            for pool_worker in self._pool:
                if not queue:
                    return
                if pool_worker.is_starting or len(pool_worker.tasks) != depth:
                    continue
                if depth > 0:
                    neighbours = (queue[0].item, *(task.item for task, _ in pool_worker.tasks))
                    is_reserved = len(queue) <= starting  # for workers that have not started yet
                    if is_reserved or any(map(work.is_long, neighbours)):
                        continue
                task = queue.popleft()
                handle = self.submit(pool_worker.worker, work.function, task.item)
                pool_worker.tasks.append((task, handle))

    def _wait_for_any(self) -> Iterator[PoolWorker[Worker, Handle]]:
        """Wait, and return the workers that have started or finished their oldest task."""
        awaited = {
            pool_worker.next_handle: pool_worker
            for pool_worker in self._pool
            if pool_worker.next_handle is not None
        }
        done = self.wait(list(awaited), START_TIMEOUT)
        if not done and all(pool_worker.is_starting for pool_worker in self._pool):
            message = f"workers: still waiting for the first of {self.pool_size} to start"
            warnings.warn(MemoWarning(message), stacklevel=2)
        return (awaited[handle] for handle in done)

    def _collect(
        self, pool_worker: PoolWorker[Worker, Handle], work: Work[Item, Any], queue: deque[Task[Item]]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index and the outcome of the worker's oldest task, unless it is to be retried."""
        if pool_worker.is_starting:
            self._finish_start(pool_worker)
            return
        task, handle = pool_worker.tasks.popleft()
        try:
            result = self.result(handle)
        except WorkerDied as error:
            self._pool.remove(pool_worker)
            self.stop_worker(pool_worker.worker, is_busy=False)
            queue.extendleft(other for other, _ in reversed(pool_worker.tasks))
            failure = error
        except MemoError:
            raise
        except Exception as error:
            failure = error
        else:
            yield task.index, result
            return
        failures = task.failures + 1
        if failures == MAX_TRIES:
            yield task.index, FailedItem(task.item, failure)
        else:
            # A whole item is repeated to the bit; its parts alone may differ in the last digits.
            is_last_try = failures == MAX_TRIES - 1
            parts = work.split(task.item) if is_last_try else [task.item]
            if len(parts) > 1:
                failures -= 1  # most parts are innocent, and one may be blamed for its neighbour
            queue.extendleft(Task(task.index, part, failures) for part in reversed(parts))

    def _finish_start(self, pool_worker: PoolWorker[Worker, Handle]) -> None:
        """Let the worker take tasks, or drop it if its start failed."""
        assert pool_worker.start_handle is not None
        try:
            self.result(pool_worker.start_handle)
        except Exception as error:
            self._pool.remove(pool_worker)
            self.stop_worker(pool_worker.worker, is_busy=False)
            self._failed_starts += 1
            if self._failed_starts == MAX_TRIES:
                self._shrink_pool(error)
        else:
            pool_worker.start_handle, self._failed_starts = None, 0

    def _shrink_pool(self, error: Exception) -> None:
        """Limit the pool to the workers that have started; raise if there are none."""
        self.pool_size = sum(not pool_worker.is_starting for pool_worker in self._pool)
        self._failed_starts = 0
        if self.pool_size == 0:
            raise MemoError(f"workers: {MAX_TRIES} in a row failed to start: {error}") from error
        message = f"workers: continuing with {self.pool_size}, as more failed to start: {error}"
        warnings.warn(MemoWarning(message), stacklevel=2)

    def _stop(self, pool_workers: Sequence[PoolWorker[Worker, Handle]]) -> None:
        for pool_worker in pool_workers:
            self._pool.remove(pool_worker)
            self.stop_worker(pool_worker.worker, is_busy=bool(pool_worker.tasks))


def _final_error(error: Exception) -> Exception:
    """Return the error to raise for an item that failed MAX_TRIES times."""
    if isinstance(error, WorkerDied):
        return MemoError(f"workers: the same task killed its worker {MAX_TRIES} times ({error})")
    return error
