"""How much memory this machine has, or the container that the process runs in."""

import os
from contextlib import suppress
from pathlib import Path

# Of control groups, version 2 and version 1; "max" or a huge number mean no limit.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_memory_gib() -> float:
    """Return the physical memory in GiB, or the container's limit if that is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_container_limits()]) / 2**30


def _container_limits() -> list[int]:
    found: list[int] = []
    for path in LIMITS:
        with suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return found
