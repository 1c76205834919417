"""Run methods over labelled points. Targets meet predictions here and nowhere else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from memo_tta.data.dataset import Dataset
from memo_tta.errors import InputError
from memo_tta.evaluation.records import Record, SkippedPoint, make_record
from memo_tta.methods import Method
from memo_tta.methods.shared_work import Cost, SharedWork
from memo_tta.models.classifier import Point

Methods = Mapping[str, Method[Any]]


def run(
    dataset: Dataset, methods: Methods, positions: Sequence[int] | None = None, skip_bad: bool = False
) -> Iterator[Record | SkippedPoint]:
    """Yield the record of every method at every position.

    Methods that take one point at a time share the work that they have in common; the others get batches in
    order.
    """
    positions = range(len(dataset)) if positions is None else positions
    single = {name: method for name, method in methods.items() if method.points == 1 and not method.online}
    if single:
        yield from _point_by_point(dataset, single, positions, skip_bad)
    for name, method in methods.items():
        if name not in single:
            yield from _in_batches(dataset, name, method, positions, skip_bad)


def _point_by_point(
    dataset: Dataset, methods: Methods, positions: Sequence[int], skip_bad: bool
) -> Iterator[Record | SkippedPoint]:
    for position in positions:
        point = _read(dataset, position, next(iter(methods.values())), skip_bad)
        if isinstance(point, SkippedPoint):
            yield point
            continue
        work = SharedWork()
        for name, method in methods.items():
            work.start_method()
            (prediction,) = method.predict_points([point], [dataset.id(position)], work)
            yield make_record(dataset, position, name, prediction, work.cost())


def _in_batches(
    dataset: Dataset, name: str, method: Method[Any], positions: Sequence[int], skip_bad: bool
) -> Iterator[Record | SkippedPoint]:
    """Run one method on batches in order; an online method starts from the source."""
    method.reset()
    for start in range(0, len(positions), method.points):
        points: dict[int, Point] = {}
        for position in positions[start : start + method.points]:
            point = _read(dataset, position, method, skip_bad)
            if isinstance(point, SkippedPoint):
                yield point
            else:
                points[position] = point
        if points:
            work = SharedWork()
            ids = [dataset.id(position) for position in points]
            predictions = method.predict_points(list(points.values()), ids, work)
            share = Cost(*(seconds / len(points) for seconds in astuple(work.cost())))
            for position, prediction in zip(points, predictions, strict=True):
                yield make_record(dataset, position, name, prediction, share)


def _read(dataset: Dataset, position: int, method: Method[Any], skip_bad: bool) -> Point | SkippedPoint:
    try:
        return method.classifier.point(dataset[position].image)
    except InputError as error:
        if not skip_bad:
            raise InputError(f"{error} (--skip-bad leaves such images out)") from None
        sample = str(dataset.id(position))
        return SkippedPoint(dataset.name, dataset.corruption, dataset.severity, position, sample, str(error))
