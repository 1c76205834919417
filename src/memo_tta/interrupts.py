"""Undo changes completely, whatever exception interrupts the undoing.

A signal handler may raise between any two bytecodes, also while a `with` block is being entered or left, and
then the block's own exit never runs. So each change first registers how to undo it. Leaving the block undoes
it; `protected`, outside all blocks, undoes what an interruption left behind.
"""

from collections.abc import Callable
from threading import get_ident
from typing import TypeVar

Value = TypeVar("Value")

FUTILE = 100  # failures of one action in a row: it is broken, not interrupted

_PENDING: dict[int, list["undoing"]] = {}  # by thread, innermost last


class undoing:  # noqa: N801, used like a function
    """Run the actions, last one first, when the block is left; one that is interrupted is run again.

    An action must be idempotent, and harmless before the change that it undoes. With `of_thread`, the changes
    concern this thread alone, so that a forked child that has lost it has nothing to undo.
    """

    def __init__(self, *actions: Callable[[], object], of_thread: bool = False):
        self.left, self.of_thread = list(actions), of_thread

    def __enter__(self) -> None:
        self._pending = _PENDING.setdefault(get_ident(), [])
        self._depth = len(self._pending)
        self._pending.append(self)

    def __exit__(self, *_: object) -> None:
        # A block that was abandoned half way may be closed much later, by the garbage collector.
        if self in self._pending[self._depth :]:
            _undo(self._pending, self._depth)


def protected(body: Callable[[], Value]) -> Value:
    """Return body(); before that, or before its exception goes on, everything is undone."""
    pending = _PENDING.setdefault(get_ident(), [])
    depth = len(pending)
    try:
        return body()
    finally:
        try:
            _undo(pending, depth)
        finally:
            _undo(pending, depth)  # the first may have been interrupted before its first line
            if not depth:
                _PENDING.pop(get_ident(), None)


def undo_for_lost_threads() -> bool:
    """In a forked child, undo what the parent's other threads were in the middle of, if anything."""
    lost = [_PENDING.pop(ident) for ident in [*_PENDING] if ident != get_ident()]
    for pending in lost:
        _undo([change for change in pending if not change.of_thread], 0)
    return any(lost)


def _undo(pending: list[undoing], depth: int) -> None:
    """Undo and drop all above `depth`, innermost first, then raise what interrupted it."""
    interrupt, failures = None, 0
    while len(pending) > depth:
        left = pending[-1].left
        try:
            while left:
                left[-1]()
                left.pop()
                failures = 0
            pending.pop()
        except BaseException as error:
            interrupt, failures = error, failures + 1
            if failures == FUTILE:
                left.pop()
                failures = 0
    if interrupt is not None:
        raise interrupt
