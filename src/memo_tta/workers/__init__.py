"""Work spread over workers: a worker that dies is replaced, and what it had in hand is done again."""

from memo_tta.workers.engine import TRIES, Engine, Failed, Work, WorkerDied
from memo_tta.workers.processes import Processes, default_workers, ordered_map

__all__ = ["TRIES", "Engine", "Failed", "Processes", "Work", "WorkerDied", "default_workers", "ordered_map"]
