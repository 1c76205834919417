"""Freed memory: kept by processes that run networks, and returned when they run short of it."""

import ctypes
from contextlib import suppress

# Options of mallopt, from glibc's malloc.h. Values are C ints, and 32 MiB is the largest mmap threshold that
# glibc accepts. Arenas of threads return their heaps to the kernel whatever the trim threshold is, so all
# threads share the main arena.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD, M_ARENA_MAX = -3, -1, -2, -8
OPTIONS = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 64 << 20, M_ARENA_MAX: 1}


def keep_freed_memory() -> None:
    """Keep freed memory: each forward pass needs as much again, and the kernel has to zero every new page."""
    with suppress(OSError, AttributeError):  # the C library is not glibc
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in OPTIONS.items():
            mallopt(option, value)


def return_freed_memory() -> None:
    """Return the freed memory that was kept to the system."""
    with suppress(OSError, AttributeError):  # the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)
