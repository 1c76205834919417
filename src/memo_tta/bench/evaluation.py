"""`memo evaluate`: overhead, work shared between methods, speed-up by workers, memory."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import torch
from safetensors.torch import save_file

from memo_tta.bench.measurement import Measurement, in_new_process, interleaved, ratio, status_kib
from memo_tta.evaluation.driver import evaluate
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import Record, SkippedPoint
from memo_tta.evaluation.worker import WorkerContext, WorkUnit, run_unit
from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.workers import Processes, available_cores, ordered_map

ROUNDS, POINTS = 5, 8
WORKER_POINTS = 160
FEW, MANY = 1_000, 20_000
SHARED_BAR, WORKERS_BAR, THREADS_BAR, OVERHEAD_BAR, MEMORY_BAR = 1.25, 1 / 1.6, 1.0, 0.03, 16


def run() -> Iterator[Measurement]:
    with TemporaryDirectory() as folder:
        weights = Path(folder) / "random.safetensors"
        torch.manual_seed(0)
        save_file(ResNet26().state_dict(), weights)
        job = partial(EvaluationJob, data=("sample",), model="resnet26", weights=str(weights))
        yield _shared_work(job)
        yield from _workers(job)
        yield _overhead(job, Path(folder))
    few, many = (in_new_process("memo_tta.bench.evaluation", points) for points in (FEW, MANY))
    yield Measurement(
        f"extra driver memory for {MANY:,} images over {FEW:,}",
        (many - few) / 2**10,
        MEMORY_BAR,
        "MiB",
        f"method source: {many / 2**10:.0f} and {few / 2**10:.0f} MiB, without the memory-mapped data",
    )


def _shared_work(job: partial[EvaluationJob]) -> Measurement:
    """Compare three methods that share work with the slowest one alone."""
    contexts = {
        name: WorkerContext(job(methods=methods))
        for name, methods in (("all", ("source", "tta", "memo")), ("memo", ("memo",)))
    }
    units = {
        name: WorkUnit(0, tuple(context.job.methods), range(POINTS)) for name, context in contexts.items()
    }
    seconds = interleaved(
        ROUNDS, **{name: partial(context.run, units[name]) for name, context in contexts.items()}
    )
    detail = f"ResNet-26, B = 32, {available_cores()} threads, {POINTS} images per round"
    return Measurement(
        "source, tta and memo in one run / memo alone", ratio(seconds, "all", "memo"), SHARED_BAR, "x", detail
    )


def _workers(job: partial[EvaluationJob]) -> Iterator[Measurement]:
    memo = job(methods=("memo",))
    two = worker_seconds(memo, 2)
    one, threads = (_process_seconds(memo, count) for count in (1, available_cores()))
    rates = " / ".join(f"{WORKER_POINTS / seconds:.1f}" for seconds in (two, one, threads))
    detail = f"ResNet-26, B = 32: {rates} images/s (2 workers / 1 / 1 process with all threads)"
    yield Measurement("time with 2 workers / 1, a thread each", two / one, WORKERS_BAR, "x", detail)
    yield Measurement("time with 2 workers / 1 process, all threads", two / threads, THREADS_BAR, "x", detail)


def _units() -> Iterator[WorkUnit]:
    return (WorkUnit(0, ("memo",), range(start, start + POINTS)) for start in range(0, WORKER_POINTS, POINTS))


def worker_seconds(job: EvaluationJob, workers: int) -> float:
    """Return the seconds that workers take for all units, after a warm-up."""
    warm_up = [WorkUnit(0, ("memo",), range(1))] * 2 * workers
    results = ordered_map(partial(run_unit, job, None, "cpu"), [*warm_up, *_units()], workers)
    for _ in warm_up:
        next(results)
    began = perf_counter()
    for _ in results:
        pass
    return perf_counter() - began


def _process_seconds(job: EvaluationJob, threads: int) -> float:
    """Return the seconds that this process takes for all units, after a warm-up."""
    torch.set_num_threads(threads)
    context = WorkerContext(job)
    context.run(WorkUnit(0, ("memo",), range(1)))
    began = perf_counter()
    for unit in _units():
        context.run(unit)
    return perf_counter() - began


def _overhead(job: partial[EvaluationJob], folder: Path) -> Measurement:
    """Return the share of a run in one process that is spent outside its methods."""
    small_job = job(methods=("source", "tta", "memo"), limit=40)
    inside = 0.0
    original = WorkerContext.run

    def timed_run(self: WorkerContext, unit: WorkUnit) -> list[Record | SkippedPoint]:
        nonlocal inside
        began = perf_counter()
        records = original(self, unit)
        inside += perf_counter() - began
        return records

    times: list[float] = []

    def on_records(done: int, total: int, errors: object) -> None:
        times.append(perf_counter())

    WorkerContext.run = timed_run
    try:
        evaluate(small_job, folder / "run", Processes(1), on_records)
    finally:
        WorkerContext.run = original
    spent = times[-1] - times[0]
    detail = f"records, progress and statistics of 120 predictions: {spent - inside:.3f} s of {spent:.1f} s"
    return Measurement(
        "share of a run outside its methods", (spent - inside) / spent, OVERHEAD_BAR, "", detail
    )


def peak_while_evaluating(points: int) -> int:
    """Return the peak anonymous memory of an evaluation in KiB; mapped images do not count."""
    anonymous: list[int] = []
    with TemporaryDirectory() as folder:
        data, weights = Path(folder) / "data.npz", Path(folder) / "random.safetensors"
        np.savez(data, x=np.broadcast_to(np.uint8(0), (points, 32, 32, 3)), y=np.arange(points) % 10)
        save_file(ResNet26().state_dict(), weights)
        job = EvaluationJob(data=(str(data),), model="resnet26", weights=str(weights), methods=("source",))
        evaluate(job, Path(folder) / "run", Processes(1), lambda *_: anonymous.append(status_kib("RssAnon")))
    return max(anonymous)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(peak_while_evaluating(int(sys.argv[1]))))
