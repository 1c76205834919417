"""The memory of an evaluation: what a worker takes, and micro-batches for what would not fit."""

from collections.abc import Mapping
from dataclasses import dataclass

from memo_tta.evaluation.worker import WorkerContext
from memo_tta.methods.footprint import PROCESS, measure_footprint

GIB = 2**30
USABLE = 0.8  # of the memory: the rest is for this process and for everything else


@dataclass(frozen=True)
class WorkerMemory:
    """What a worker takes with the method that needs most, and the micro-batches of methods."""

    gib: float
    method: str
    micro_batches: Mapping[str, int]

    def __str__(self) -> str:
        text = f"a worker takes about {self.gib:.1f} GiB ({self.method})"
        if self.micro_batches:
            chosen = ", ".join(f"{name} {size}" for name, size in self.micro_batches.items())
            text += f"; as that would not fit otherwise, micro_batch is {chosen}"
        return text


def plan_memory(context: WorkerContext, limit_gib: float | None) -> WorkerMemory:
    """Measure the methods of a job, and choose micro-batches if a worker may not take more than this."""
    limit = None if limit_gib is None else USABLE * limit_gib * GIB - PROCESS
    totals: dict[str, float] = {}
    micro_batches: dict[str, int] = {}
    for name in context.job.methods:
        method = context.method(0, name)
        footprint = measure_footprint(method, method.batch_points)
        totals[name] = footprint.total
        if limit is not None and footprint.total > limit and hasattr(method.options, "micro_batch"):
            micro_batches[name] = footprint.fitting_views(int(limit))
            totals[name] = footprint.model + footprint.view * micro_batches[name]
    largest = max(totals, key=lambda name: totals[name])
    return WorkerMemory((PROCESS + totals[largest]) / GIB, largest, micro_batches)
