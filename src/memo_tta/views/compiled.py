"""Compile loops over pixels, once per machine."""

from collections.abc import Callable
from typing import Any

import numba

Function = Callable[..., Any]


def kernel(signature: str) -> Callable[[Function], Function]:
    """Machine code that releases the GIL, kept on disk beside its source or in the user's cache.

    What it keeps is renewed when its own file changes, so whatever a kernel calls, and every constant
    that it reads, must stand in that file.
    """

    def build(function: Function) -> Function:
        try:
            return numba.njit(signature, nogil=True, cache=True)(function)
        except (RuntimeError, OSError):  # there is no place to keep it, or no room
            return numba.njit(signature, nogil=True)(function)

    return build
