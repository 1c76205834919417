"""Run work in parallel on processes or a cluster; workers that die are replaced and their tasks retried."""

from memo_tta.workers.engine import MAX_TRIES, Engine, FailedItem, Work, WorkerDied
from memo_tta.workers.processes import Processes, available_cores, ordered_map

__all__ = [
    "MAX_TRIES",
    "Engine",
    "FailedItem",
    "Processes",
    "Work",
    "WorkerDied",
    "available_cores",
    "ordered_map",
]
