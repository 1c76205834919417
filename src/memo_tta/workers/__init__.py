"""Work spread over workers: a worker that dies is replaced, and what it had in hand is done again."""

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
