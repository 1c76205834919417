"""The overhead of Ray: the same run by two actors and by two processes, taking turns."""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from memo_tta.bench.measurement import Measurement
from memo_tta.data.corruptions import TEST
from memo_tta.evaluation.driver import evaluate
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.worker import UNIT_POINTS
from memo_tta.workers import Engine, Processes, Work, available_cores
from memo_tta.workers.ray import Ray

ROUNDS, SECONDS = 2, 30  # per engine
EMPTY_UNITS = 1000
RATE_BAR, SCHEDULING_BAR = 1 / 0.9, 0.02
THREADS = max(1, available_cores() // 2)  # per worker

ENGINES: dict[str, Callable[[], Engine[Any, Any]]] = {
    "ray": lambda: Ray(2, num_cpus=THREADS),
    "local": lambda: Processes(2),
}


class MeasurementDone(Exception):
    """Stops a run once its rate has been measured."""


class RecordRate:
    """Records per second from the first stored unit on, without the start of the workers."""

    def __init__(self):
        self.updates: list[tuple[float, int]] = []  # time, records so far

    def __call__(self, done: int, total: int, _errors: object) -> None:
        self.updates.append((perf_counter(), done))
        if perf_counter() - self.updates[min(1, len(self.updates) - 1)][0] > SECONDS:
            raise MeasurementDone

    @property
    def records_per_second(self) -> float:
        (began, before), (ended, after) = self.updates[1], self.updates[-1]
        return (after - before) / (ended - began)


def run() -> Iterator[Measurement]:
    rates: dict[str, list[float]] = {name: [] for name in ENGINES}
    with TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            for name, engine in ENGINES.items():
                rates[name].append(_measure_rate(engine(), Path(folder) / name))
    ratio = median(local / ray for ray, local in zip(*rates.values(), strict=True))
    ray, local = (median(rates[name]) for name in ENGINES)
    yield Measurement(
        "time with 2 actors / 2 processes",
        ratio,
        RATE_BAR,
        "x",
        f"ResNet-26, B = 32, {ROUNDS} times {SECONDS} s each: {ray:.2f} / {local:.2f} images/s",
    )
    empty, work = _seconds_per_empty_unit(), UNIT_POINTS / (ray / 2)
    detail = f"{empty * 1000:.1f} ms of {work:.2f} s for {UNIT_POINTS} images"
    yield Measurement("scheduling of a unit / its work", empty / work, SCHEDULING_BAR, "", detail)


def _measure_rate(engine: Engine[Any, Any], out: Path) -> float:
    """Return the records per second of a run, which resumes where the previous round stopped it."""
    job = EvaluationJob(data=("sample",), model="resnet26", methods=("memo",), corruptions=TEST)
    rate = RecordRate()
    try:
        with engine:
            evaluate(job, out, engine, rate)
    except MeasurementDone:
        pass
    return rate.records_per_second


def _seconds_per_empty_unit() -> float:
    with Ray(1) as engine:
        results = engine.results(Work(do_nothing), range(EMPTY_UNITS))
        next(results)
        began = perf_counter()
        for _ in results:
            pass
        return (perf_counter() - began) / (EMPTY_UNITS - 1)


def do_nothing(_: int) -> None:
    pass
