"""How memory is managed where networks run all the time."""

import ctypes
from contextlib import suppress

# Of glibc's malloc.h; values are C integers, and the first cannot be larger. Heaps of threads are cut into
# pieces that go back to the kernel whatever is asked, so threads share one that is not.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD, M_ARENA_MAX = -3, -1, -2, -8
OPTIONS = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 64 << 20, M_ARENA_MAX: 1}


def keep_freed_memory() -> None:
    """Give no page back: a network asks for the same ones at every pass, and the kernel clears each again."""
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in OPTIONS.items():
            mallopt(option, value)
