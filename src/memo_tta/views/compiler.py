"""Compile loops over pixels to machine code, once per machine."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

import numba

Function = Callable[..., Any]
SLOW_SECONDS = 5.0  # loading from the cache is faster, even on a busy machine; compiling is slower


def kernel(signature: str) -> Callable[[Function], Function]:
    """Compile a function so that it releases the GIL, and cache it beside its source or in the user's cache.

    The cache is invalidated when the function's own file changes, so every function that it calls and
    every constant that it reads must be in that file.
    """

    def build(function: Function) -> Function:
        with _warn_if_slow():
            try:
                return numba.njit(signature, nogil=True, cache=True)(function)
            except (RuntimeError, OSError):  # no folder can be written, or the disk is full
                return numba.njit(signature, nogil=True)(function)

    return build


@contextmanager
def _warn_if_slow() -> Iterator[None]:
    warn = logging.getLogger("memo_tta").warning
    timer = Timer(SLOW_SECONDS, warn, ["compiling views for this processor, once: about 10 seconds"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
