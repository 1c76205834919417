"""A parallel loop over views; each is computed on its own, so threads change nothing but the time."""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

PARTS_PER_THREAD = 4  # views differ in cost: a thread that is done takes the next part


def parallel_for(work: Callable[[slice], object], n: int) -> None:
    """Call work(part) for slices that cover range(n), in as many threads as torch uses."""
    threads = min(torch.get_num_threads(), n)
    if threads == 1:
        work(slice(n))
        return
    length = -(-n // (PARTS_PER_THREAD * threads))
    parts = deque(slice(first, min(first + length, n)) for first in range(0, n, length))

    def work_on_parts() -> None:
        while True:
            try:
                part = parts.popleft()
            except IndexError:
                return
            work(part)

    others = [_pool(threads - 1).submit(work_on_parts) for _ in range(threads - 1)]
    work_on_parts()
    for other in others:
        if not other.cancel():
            other.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="memo-views")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
