"""Run work in parallel on processes or a cluster; workers that die are replaced and their tasks retried."""

from memo_tta.workers.cores import available_cores
from memo_tta.workers.engine import MAX_TRIES, Engine, FailedItem, Work, WorkerDied
from memo_tta.workers.processes import Processes, ordered_map
from memo_tta.workers.this_process import prepare_process

__all__ = [
    "MAX_TRIES",
    "Engine",
    "FailedItem",
    "Processes",
    "Work",
    "WorkerDied",
    "available_cores",
    "ordered_map",
    "prepare_process",
]
