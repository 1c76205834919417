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
Ticket = TypeVar("Ticket")

TRIES = 3
AHEAD = 2  # items handed out per worker, so that none waits for the next
PATIENCE = 60.0  # seconds without any worker before the user is told


class WorkerDied(MemoError):
    """A worker ended before its work did."""


@dataclass(frozen=True)
class Failed(Generic[Item]):
    """An item that was tried three times, and what came of it last."""

    item: Item
    error: Exception


@dataclass
class Task(Generic[Item]):
    number: int
    item: Item
    tries: int = 0


@dataclass(eq=False)
class Member(Generic[Worker, Ticket]):
    """A worker and what it has in hand, oldest first; until it can work, its start comes before that."""

    worker: Worker
    start: Ticket | None
    hands: deque[tuple[Task[Any], Ticket]] = field(default_factory=deque)

    @property
    def ticket(self) -> Ticket | None:
        """What it will be done with next."""
        return self.start or (self.hands[0][1] if self.hands else None)


def _final(error: Exception) -> Exception:
    if isinstance(error, WorkerDied):
        return MemoError(f"workers: one died {TRIES} times at the same work ({error})")
    return error


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """What is to be done with items; function and items must be picklable, and twice must do no harm."""

    function: Callable[[Item], Result]
    split: Callable[[Item], Sequence[Item]] = lambda item: [item]  # one that failed, for the next try
    long: Callable[[Item], bool] = lambda _: False  # nothing should have to wait behind it
    gib: float = 0.0  # memory that a worker needs; 0: next to none


class Engine(ABC, Generic[Worker, Ticket]):
    """Workers of one kind, which stay from one lot of work to the next until the `with` block ends.

    A worker does its items one after the other, so when it dies, the oldest one is to blame.
    """

    device = "cpu"  # where workers keep their models

    def __init__(self, workers: int | None = None):
        self.workers = workers
        self.size = 0  # known when the work is
        self._crew: list[Member[Worker, Ticket]] = []
        self._false_starts = 0

    @abstractmethod
    def room(self, gib: float) -> int:
        """How many workers to have if nobody says, when each needs so much memory."""

    @abstractmethod
    def hire(self) -> tuple[Worker, Ticket]:
        """A new worker, and a ticket that is done when it can work."""

    @abstractmethod
    def hand(self, worker: Worker, function: Callable[[Item], Any], item: Item) -> Ticket: ...

    @abstractmethod
    def wait(self, tickets: Sequence[Ticket], seconds: float) -> Sequence[Ticket]:
        """Those that are done, as soon as one is."""

    @abstractmethod
    def result(self, ticket: Ticket) -> Any:
        """Of one that is done; raises WorkerDied, or what the function raised."""

    @abstractmethod
    def fire(self, worker: Worker, busy: bool) -> None:
        """End a worker, whatever it does."""

    def share(self, key: str, value: Result) -> Callable[[], Result] | None:
        """How workers get a value without its travelling with every item; None: they make their own."""
        return None

    def check(self, probe: Callable[[], dict[str, str]]) -> None:
        """Raise unless wherever workers may run, the probe finds what it finds here."""
        return

    def results(
        self, work: Work[Item, Result], items: Iterable[Item]
    ) -> Generator[Result | Failed[Item], None, None]:
        """What becomes of each item, as they come; a MemoError, which says what to do, is the caller's."""
        for _, outcome in self._run(work, items, ()):
            yield outcome

    def in_order(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Generator[Result, None, None]:
        """function(item) of each item, in order; what fails three times is the caller's."""
        early = dict[int, Result | Failed[Item]]()
        turn = 0
        for number, outcome in self._run(Work(function), items, early):
            early[number] = outcome
            while turn in early:
                outcome = early.pop(turn)
                if isinstance(outcome, Failed):
                    raise _final(outcome.error)
                yield outcome
                turn += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._dismiss(list(self._crew))

    def _settle(self, gib: float) -> None:
        self.size = self.size or self.workers or self.room(gib)

    def _run(
        self, work: Work[Item, Result], items: Iterable[Item], held: Sized
    ) -> Generator[tuple[int, Result | Failed[Item]], None, None]:
        """Outcomes and the numbers of their items; no more are under way, or held, than keep all busy."""
        self._settle(work.gib)
        source, queue = enumerate(items), deque[Task[Item]]()
        try:
            while True:
                free = AHEAD * self.size - len(queue) - self._in_hand() - len(held)
                queue.extend(Task(number, item) for number, item in islice(source, max(0, free)))
                self._hand_out(work, queue)
                if not queue and not self._in_hand():
                    return
                for member in self._awaited():
                    yield from self._take(member, work, queue)
        finally:
            self._dismiss([member for member in self._crew if member.hands])

    def _in_hand(self) -> int:
        return sum(len(member.hands) for member in self._crew)

    def _hand_out(self, work: Work[Item, Any], queue: deque[Task[Item]]) -> None:
        while len(self._crew) < min(self.size, len(queue) + self._in_hand()):
            self._crew.append(Member(*self.hire()))
        starting = sum(member.start is not None for member in self._crew)
        for depth in range(AHEAD):  # nobody gets a second one before all have a first, or may have it soon
            for member in self._crew:
                if not queue:
                    return
                before = [task.item for task, _ in member.hands]
                is_bad_second = len(queue) <= starting or any(map(work.long, (queue[0].item, *before)))
                waits = depth > 0 and is_bad_second
                if member.start is None and len(before) == depth and not waits:
                    task = queue.popleft()
                    member.hands.append((task, self.hand(member.worker, work.function, task.item)))

    def _awaited(self) -> Iterator[Member[Worker, Ticket]]:
        """Members that are done with something."""
        awaited = {member.ticket: member for member in self._crew if member.ticket is not None}
        done = self.wait(list(awaited), PATIENCE)
        if not done and all(member.start is not None for member in self._crew):
            warnings.warn(MemoWarning(f"workers: none of {self.size} could be started yet"), stacklevel=2)
        return (awaited[ticket] for ticket in done)

    def _take(
        self, member: Member[Worker, Ticket], work: Work[Item, Any], queue: deque[Task[Item]]
    ) -> Iterator[tuple[int, Any]]:
        """The outcome of what the member is done with, if that is final."""
        if member.start is not None:
            self._welcome(member)
            return
        task, ticket = member.hands.popleft()
        try:
            result = self.result(ticket)
        except WorkerDied as error:
            self._crew.remove(member)
            self.fire(member.worker, busy=False)
            queue.extendleft(other for other, _ in reversed(member.hands))
            failure = error
        except MemoError:
            raise
        except Exception as error:
            failure = error
        else:
            yield task.number, result
            return
        tries = task.tries + 1
        if tries == TRIES:
            yield task.number, Failed(task.item, failure)
        else:
            queue.extendleft(Task(task.number, part, tries) for part in reversed(work.split(task.item)))

    def _welcome(self, member: Member[Worker, Ticket]) -> None:
        assert member.start is not None
        try:
            self.result(member.start)
        except Exception as error:
            self._crew.remove(member)
            self.fire(member.worker, busy=False)
            self._false_starts += 1
            if self._false_starts == TRIES:
                self._do_with_fewer(error)
        else:
            member.start, self._false_starts = None, 0

    def _do_with_fewer(self, error: Exception) -> None:
        """Go on with those that work, if there are any."""
        self.size = sum(member.start is None for member in self._crew)
        self._false_starts = 0
        if self.size == 0:
            raise MemoError(f"workers: {TRIES} in a row could not be started: {error}") from error
        warnings.warn(MemoWarning(f"workers: going on with {self.size}: {error}"), stacklevel=2)

    def _dismiss(self, members: list[Member[Worker, Ticket]]) -> None:
        for member in members:
            self._crew.remove(member)
            self.fire(member.worker, busy=bool(member.hands))
