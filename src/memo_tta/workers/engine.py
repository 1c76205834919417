"""What every kind of workers shares: handing out, taking back, trying again, replacing the dead."""

import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Self, TypeVar

from memo_tta.errors import MemoError, MemoWarning

Item = TypeVar("Item")
Result = TypeVar("Result")
Worker = TypeVar("Worker")
Handle = TypeVar("Handle")

MAX_TRIES = 3
TASKS_PER_WORKER = 2  # items handed out per worker, so that none waits for the next
START_TIMEOUT = 60.0  # seconds without any worker before the user is told


class WorkerDied(MemoError):
    """A worker ended before its work did."""


@dataclass(frozen=True)
class FailedItem(Generic[Item]):
    """An item that was tried three times, and what came of it last."""

    item: Item
    error: Exception


@dataclass
class Task(Generic[Item]):
    number: int
    item: Item
    tries: int = 0


@dataclass(eq=False)
class PoolWorker(Generic[Worker, Handle]):
    """A worker and what it has in hand, oldest first; until it can work, its start comes before that."""

    worker: Worker
    start: Handle | None
    tasks: deque[tuple[Task[Any], Handle]] = field(default_factory=deque)

    @property
    def handle(self) -> Handle | None:
        """What it will be done with next."""
        return self.start or (self.tasks[0][1] if self.tasks else None)


def _final(error: Exception) -> Exception:
    if isinstance(error, WorkerDied):
        return MemoError(f"workers: one died {MAX_TRIES} times at the same work ({error})")
    return error


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """What is to be done with items; function and items must be picklable, and twice must do no harm."""

    function: Callable[[Item], Result]
    split: Callable[[Item], Sequence[Item]] = lambda item: [item]  # one that failed, for the next try
    long: Callable[[Item], bool] = lambda _: False  # nothing should have to wait behind it
    gib: float = 0.0  # memory that a worker needs; 0: next to none


class Engine(ABC, Generic[Worker, Handle]):
    """Workers of one kind, which stay from one lot of work to the next until the `with` block ends.

    A worker does its items one after the other, so when it dies, the oldest one is to blame.
    """

    device = "cpu"  # where workers keep their models

    def __init__(self, workers: int | None = None):
        self.workers = workers
        self.size = 0  # known when the work is
        self._pool: list[PoolWorker[Worker, Handle]] = []
        self._failed_starts = 0

    @abstractmethod
    def capacity(self, gib: float) -> int:
        """How many workers to have if nobody says, when each needs so much memory."""

    @abstractmethod
    def start_worker(self) -> tuple[Worker, Handle]:
        """A new worker, and a handle that is done when it can work."""

    @abstractmethod
    def submit(self, worker: Worker, function: Callable[[Item], Any], item: Item) -> Handle: ...

    @abstractmethod
    def wait(self, handles: Sequence[Handle], seconds: float) -> Sequence[Handle]:
        """Those that are done, as soon as one is."""

    @abstractmethod
    def result(self, handle: Handle) -> Any:
        """Of one that is done; raises WorkerDied, or what the function raised."""

    @abstractmethod
    def stop_worker(self, worker: Worker, busy: bool) -> None:
        """End a worker, whatever it does."""

    def share(self, key: str, value: Result) -> Callable[[], Result] | None:
        """How workers get a value without its travelling with every item; None: they make their own."""
        return None

    def check_nodes(self, probe: Callable[[], dict[str, str]]) -> None:
        """Raise unless wherever workers may run, the probe finds what it finds here."""
        return

    def results(
        self, work: Work[Item, Result], items: Iterable[Item]
    ) -> Generator[Result | FailedItem[Item], None, None]:
        """What becomes of each item, as they come; a MemoError, which says what to do, is the caller's."""
        for _, outcome in self._run(work, items, ()):
            yield outcome

    def ordered_results(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Generator[Result, None, None]:
        """function(item) of each item, in order; what fails three times is the caller's."""
        early = dict[int, Result | FailedItem[Item]]()
        turn = 0
        for number, outcome in self._run(Work(function), items, early):
            early[number] = outcome
            while turn in early:
                outcome = early.pop(turn)
                if isinstance(outcome, FailedItem):
                    raise _final(outcome.error)
                yield outcome
                turn += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop(list(self._pool))

    def _fix_size(self, gib: float) -> None:
        self.size = self.size or self.workers or self.capacity(gib)

    def _run(
        self, work: Work[Item, Result], items: Iterable[Item], held: Sized
    ) -> Generator[tuple[int, Result | FailedItem[Item]], None, None]:
        """Outcomes and the numbers of their items; no more are under way, or held, than keep all busy."""
        self._fix_size(work.gib)
        source, queue = enumerate(items), deque[Task[Item]]()
        try:
            while True:
                free = TASKS_PER_WORKER * self.size - len(queue) - self._in_flight() - len(held)
                queue.extend(Task(number, item) for number, item in islice(source, max(0, free)))
                self._submit_queued(work, queue)
                if not queue and not self._in_flight():
                    return
                for member in self._finished():
                    yield from self._collect(member, work, queue)
        finally:
            self._stop([member for member in self._pool if member.tasks])

    def _in_flight(self) -> int:
        return sum(len(member.tasks) for member in self._pool)

    def _submit_queued(self, work: Work[Item, Any], queue: deque[Task[Item]]) -> None:
        while len(self._pool) < min(self.size, len(queue) + self._in_flight()):
            self._pool.append(PoolWorker(*self.start_worker()))
        starting = sum(member.start is not None for member in self._pool)
        for depth in range(
            TASKS_PER_WORKER
        ):  # nobody gets a second one before all have a first, or may have it soon
            for member in self._pool:
                if not queue:
                    return
                before = [task.item for task, _ in member.tasks]
                is_bad_second = len(queue) <= starting or any(map(work.long, (queue[0].item, *before)))
                waits = depth > 0 and is_bad_second
                if member.start is None and len(before) == depth and not waits:
                    task = queue.popleft()
                    member.tasks.append((task, self.submit(member.worker, work.function, task.item)))

    def _finished(self) -> Iterator[PoolWorker[Worker, Handle]]:
        """Members that are done with something."""
        awaited = {member.handle: member for member in self._pool if member.handle is not None}
        done = self.wait(list(awaited), START_TIMEOUT)
        if not done and all(member.start is not None for member in self._pool):
            warnings.warn(MemoWarning(f"workers: none of {self.size} could be started yet"), stacklevel=2)
        return (awaited[handle] for handle in done)

    def _collect(
        self, member: PoolWorker[Worker, Handle], work: Work[Item, Any], queue: deque[Task[Item]]
    ) -> Iterator[tuple[int, Any]]:
        """The outcome of what the member is done with, if that is final."""
        if member.start is not None:
            self._finish_start(member)
            return
        task, handle = member.tasks.popleft()
        try:
            result = self.result(handle)
        except WorkerDied as error:
            self._pool.remove(member)
            self.stop_worker(member.worker, busy=False)
            queue.extendleft(other for other, _ in reversed(member.tasks))
            failure = error
        except MemoError:
            raise
        except Exception as error:
            failure = error
        else:
            yield task.number, result
            return
        tries = task.tries + 1
        if tries == MAX_TRIES:
            yield task.number, FailedItem(task.item, failure)
        else:
            queue.extendleft(Task(task.number, part, tries) for part in reversed(work.split(task.item)))

    def _finish_start(self, member: PoolWorker[Worker, Handle]) -> None:
        assert member.start is not None
        try:
            self.result(member.start)
        except Exception as error:
            self._pool.remove(member)
            self.stop_worker(member.worker, busy=False)
            self._failed_starts += 1
            if self._failed_starts == MAX_TRIES:
                self._shrink(error)
        else:
            member.start, self._failed_starts = None, 0

    def _shrink(self, error: Exception) -> None:
        """Go on with those that work, if there are any."""
        self.size = sum(member.start is None for member in self._pool)
        self._failed_starts = 0
        if self.size == 0:
            raise MemoError(f"workers: {MAX_TRIES} in a row could not be started: {error}") from error
        warnings.warn(MemoWarning(f"workers: going on with {self.size}: {error}"), stacklevel=2)

    def _stop(self, members: list[PoolWorker[Worker, Handle]]) -> None:
        for member in members:
            self._pool.remove(member)
            self.stop_worker(member.worker, busy=bool(member.tasks))
