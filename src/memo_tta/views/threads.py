"""Views spread over threads; each is made alone, so that their number changes nothing but the time."""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

PIECES = 4  # per thread: views differ in cost, and who is done first takes the next


def spread(work: Callable[[slice], object], n: int) -> None:
    """work(views) for all of n views, which must release the GIL; as many threads as torch computes with."""
    threads = min(torch.get_num_threads(), n)
    if threads == 1:
        work(slice(n))
        return
    length = -(-n // (PIECES * threads))
    pieces = deque(slice(first, min(first + length, n)) for first in range(0, n, length))

    def take_turns() -> None:
        while True:
            try:
                piece = pieces.popleft()
            except IndexError:
                return
            work(piece)

    others = [_pool(threads - 1).submit(take_turns) for _ in range(threads - 1)]
    take_turns()
    for other in others:
        if not other.cancel():
            other.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="memo-views")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
