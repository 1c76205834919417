"""Compile loops over pixels, once per machine."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

import numba

Function = Callable[..., Any]
LOADING = 5.0  # seconds: what takes longer, on a busy machine too, is not loaded but compiled


def kernel(signature: str) -> Callable[[Function], Function]:
    """Machine code that releases the GIL, kept on disk beside its source or in the user's cache.

    What it keeps is renewed when its own file changes, so whatever a kernel calls, and every constant
    that it reads, must stand in that file.
    """

    def build(function: Function) -> Function:
        with _said_if_slow():
            try:
                return numba.njit(signature, nogil=True, cache=True)(function)
            except (RuntimeError, OSError):  # there is no place to keep it, or no room
                return numba.njit(signature, nogil=True)(function)

    return build


@contextmanager
def _said_if_slow() -> Iterator[None]:
    say = logging.getLogger("memo_tta").warning
    timer = Timer(LOADING, say, ["compiling views for this processor, once: about 10 seconds"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
