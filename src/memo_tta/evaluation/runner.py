"""Run methods over labelled points. Targets meet predictions here and nowhere else."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from memo_tta.data.dataset import Dataset
from memo_tta.errors import InputError
from memo_tta.evaluation.records import Record, SkippedPoint, make_record
from memo_tta.methods import Method
from memo_tta.methods.shared_work import SharedWork, mean_cost
from memo_tta.models.classifier import Point

Methods = Mapping[str, Method[Any]]


def run(
    dataset: Dataset, methods: Methods, positions: Sequence[int] | None = None, skip_bad: bool = False
) -> Iterator[Record | SkippedPoint]:
    """Yield the record of every method at every position.

    Methods whose predictions do not depend on other points share the work that they have in common; the
    others get batches in order.
    """
    positions = range(len(dataset)) if positions is None else positions
    single = {name: method for name, method in methods.items() if method.points == 1 and not method.online}
    if single:
        yield from _share_work(dataset, single, positions, skip_bad)
    for name, method in methods.items():
        if name not in single:
            yield from _in_batches(dataset, name, method, positions, skip_bad)


def _share_work(
    dataset: Dataset, methods: Methods, positions: Sequence[int], skip_bad: bool
) -> Iterator[Record | SkippedPoint]:
    """Run methods that take several points at once on some positions, then the others point by point."""
    size = max(method.batch_points for method in methods.values())
    for start in range(0, len(positions), size):
        points = yield from _readable(dataset, positions[start : start + size], methods, skip_bad)
        works = {position: SharedWork() for position in points}
        for name, method in methods.items():
            if method.batch_points > 1:
                for batch in _cut(points, method.batch_points):
                    yield from _predict(dataset, name, method, batch, [works[p] for p in batch])
        for position, point in points.items():
            work = works.pop(position)  # it may hold many views
            for name, method in methods.items():
                if method.batch_points == 1:
                    yield from _predict(dataset, name, method, {position: point}, [work])


def _in_batches(
    dataset: Dataset, name: str, method: Method[Any], positions: Sequence[int], skip_bad: bool
) -> Iterator[Record | SkippedPoint]:
    """Run one method on batches in order; an online method starts from the source."""
    method.reset()
    for start in range(0, len(positions), method.points):
        part = positions[start : start + method.points]
        points = yield from _readable(dataset, part, {name: method}, skip_bad)
        if points:
            yield from _predict(dataset, name, method, points, [SharedWork() for _ in points])


def _predict(
    dataset: Dataset,
    name: str,
    method: Method[Any],
    points: Mapping[int, Point],
    works: Sequence[SharedWork],
) -> Iterator[Record]:
    """Yield the records of points that the method takes at once."""
    for work in works:
        work.start_method()
    ids = [dataset.id(position) for position in points]
    predictions = method.predict_points(list(points.values()), ids, works)
    cost = mean_cost(works)
    for position, prediction in zip(points, predictions, strict=True):
        yield make_record(dataset, position, name, prediction, cost)


def _cut(points: Mapping[int, Point], size: int) -> Iterator[dict[int, Point]]:
    rows = iter(points.items())
    while batch := dict(islice(rows, size)):
        yield batch


def _readable(
    dataset: Dataset, positions: Sequence[int], methods: Methods, skip_bad: bool
) -> Generator[SkippedPoint, None, dict[int, Point]]:
    """Return the points by position; yield those that cannot be read."""
    points: dict[int, Point] = {}
    for position in positions:
        point = _read(dataset, position, next(iter(methods.values())), skip_bad)
        if isinstance(point, SkippedPoint):
            yield point
        else:
            points[position] = point
    return points


def _read(dataset: Dataset, position: int, method: Method[Any], skip_bad: bool) -> Point | SkippedPoint:
    try:
        return method.classifier.point(dataset[position].image)
    except InputError as error:
        if not skip_bad:
            raise InputError(f"{error} (--skip-bad leaves such images out)") from None
        sample = str(dataset.id(position))
        return SkippedPoint(dataset.name, dataset.corruption, dataset.severity, position, sample, str(error))
