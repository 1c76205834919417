"""How a worker's memory is managed."""

import ctypes
from contextlib import suppress

# Of glibc's malloc.h; values are C integers, and the first cannot be larger.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD = -3, -1, -2
LARGEST, NEVER, STEP = 32 << 20, 2**31 - 1, 64 << 20


def keep_freed_memory() -> None:
    """Give no page back: a network asks for the same ones at every pass, and the kernel clears each again."""
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((M_MMAP_THRESHOLD, LARGEST), (M_TRIM_THRESHOLD, NEVER), (M_TOP_PAD, STEP)):
            mallopt(option, value)
