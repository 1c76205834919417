"""Undo changes completely, even if an exception interrupts the undoing.

A signal handler may raise between any two bytecodes, even while a `with` block is being entered or left, and
then the block's own exit never runs. So each change first registers how to undo it. Leaving the block undoes
it; `protected`, outside all blocks, undoes the changes that an interruption left behind.
"""

from collections.abc import Callable
from threading import get_ident
from typing import TypeVar

Value = TypeVar("Value")

MAX_FAILURES = 100  # of one action in a row: beyond that it is broken, not interrupted

_PENDING: dict[int, list["undoing"]] = {}  # by thread, innermost last


class undoing:  # noqa: N801, used like a function
    """Run the actions, last one first, when the block is left; repeat an action that is interrupted.

    An action must be idempotent, and harmless before the change that it undoes. `is_thread_local` marks
    changes that affect this thread only: a forked child that has lost the thread has nothing to undo.
    """

    def __init__(self, *actions: Callable[[], object], is_thread_local: bool = False):
        self.remaining, self.is_thread_local = list(actions), is_thread_local

    def __enter__(self) -> None:
        self._pending = _PENDING.setdefault(get_ident(), [])
        self._depth = len(self._pending)
        self._pending.append(self)

    def __exit__(self, *_: object) -> None:
        # The garbage collector may close an abandoned block long after its changes were undone.
        if self in self._pending[self._depth :]:
            _undo(self._pending, self._depth)


def protected(body: Callable[[], Value]) -> Value:
    """Return body(); before it returns or raises, undo every change that is still pending."""
    pending = _PENDING.setdefault(get_ident(), [])
    depth = len(pending)
    try:
        return body()
    finally:
        try:
            _undo(pending, depth)
        finally:
            _undo(pending, depth)  # the first call may have been interrupted before its first line
            if not depth:
                _PENDING.pop(get_ident(), None)


def undo_for_lost_threads() -> bool:
    """In a forked child, undo changes of the parent's other threads; return whether any were pending."""
    lost = [_PENDING.pop(ident) for ident in [*_PENDING] if ident != get_ident()]
    for pending in lost:
        _undo([change for change in pending if not change.is_thread_local], 0)
    return any(lost)


def _undo(pending: list[undoing], depth: int) -> None:
    """Undo and remove all changes above `depth`, innermost first; then raise the last interruption."""
    interrupt, failures = None, 0
    while len(pending) > depth:
        remaining = pending[-1].remaining
        try:
            while remaining:
                remaining[-1]()
                remaining.pop()
                failures = 0
            pending.pop()
        except BaseException as error:
            interrupt, failures = error, failures + 1
            if failures == MAX_FAILURES:
                remaining.pop()
                failures = 0
    if interrupt is not None:
        raise interrupt
