"""Prepare the calling process to run networks."""

import os

from memo_tta.workers.cores import free_cores
from memo_tta.workers.malloc import keep_freed_memory


def prepare_process() -> None:
    """Keep freed memory, and use as many threads as there are free cores, unless OMP_NUM_THREADS is set.

    Threads that share a core wait for each other at every layer: two processes with two threads each on two
    cores are many times slower than with one.
    """
    import torch  # not above: worker processes set their number of threads before they import it

    keep_freed_memory()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), free_cores()))
