"""Memory of requests: a budget that they share, and what to do where the machine has none left."""

import errno
import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Condition

import torch

from memo_tta.workers.malloc import return_freed_memory

LOOK_EVERY = 0.05  # seconds between two looks at the deadline while waiting
OUT_OF_MEMORY = (
    *("can't allocate memory", "not enough memory", "out of memory", "bad allocation"),
    "can't start new thread",
    "could not create a primitive",  # oneDNN's words for it
)


class MemoryBudget:
    """Bytes that threads take and give back; who finds too few waits for the others."""

    def __init__(self, size: int):
        self._size, self._free, self._changed = size, size, Condition()

    @contextmanager
    def hold(self, size: int, check: Callable[[], None]) -> Generator[None]:
        """Hold this many bytes for the block, or all if there are fewer; `check` may raise while it waits."""
        size = min(size, self._size)
        with self._changed:
            while self._free < size:
                check()
                self._changed.wait(LOOK_EVERY)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception, of Python, Pillow or torch, says that there is no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError | OSError) and any(words in str(error) for words in OUT_OF_MEMORY)


def recover_memory() -> None:
    """Give unused memory back to the system, so that an allocation of another size may succeed."""
    gc.collect()
    return_freed_memory()
