"""Undo changes exactly once, whatever exception interrupts the undoing.

A signal handler may raise between any two bytecodes, also while a `with` block is being entered or left, and
then the block's own exit never runs. So each change first registers how to undo it. Leaving the block undoes
it; `protected`, outside all blocks, undoes what an interruption left behind.
"""

from collections.abc import Callable
from threading import get_ident
from typing import TypeVar

Value = TypeVar("Value")

FUTILE = 100  # failures without progress: the action itself is broken, not interrupted

_PENDING: dict[int, list["undoing"]] = {}  # by thread, innermost last


class undoing:  # noqa: N801, used like a function
    """Run `action` when the block is left, again and again until it was not interrupted.

    The action must be idempotent, and harmless before the change that it undoes.
    """

    def __init__(self, action: Callable[[], object]):
        self.action = action

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
        _undo(pending, depth)
        if not depth:
            _PENDING.pop(get_ident(), None)


def undo_for_lost_threads() -> None:
    """In a forked child: undo what the parent's other threads were in the middle of."""
    for ident in [*_PENDING]:
        if ident != get_ident():
            _undo(_PENDING.pop(ident), 0)


def _undo(pending: list[undoing], depth: int) -> None:
    """Undo and drop all above `depth`, innermost first, then raise what interrupted it."""
    interrupt, failures = None, 0
    while len(pending) > depth:
        try:
            pending[-1].action()
            pending.pop()
            failures = 0
        except BaseException as error:
            interrupt, failures = error, failures + 1
            if failures == FUTILE:
                pending.pop()
                failures = 0
    if interrupt is not None:
        raise interrupt
