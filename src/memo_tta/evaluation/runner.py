"""Run methods over labelled points. Targets meet predictions here and nowhere else."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from memo_tta.data.dataset import Dataset
from memo_tta.errors import InputError
from memo_tta.evaluation.records import Record, SkippedPoint, make_record
from memo_tta.methods import Method
from memo_tta.methods.shared_work import SharedWork, mean_cost
from memo_tta.models.classifier import Point

Methods = Mapping[str, Method[Any]]


class DataPoint(NamedTuple):
    """A position of a data set."""

    dataset: Dataset
    position: int


class ReadPoint(NamedTuple):
    """A position of a data set, and the image that was read there."""

    at: DataPoint
    point: Point


def run(dataset: Dataset, methods: Methods, skip_bad: bool = False) -> Iterator[Record | SkippedPoint]:
    """Yield the record of every method at every position of a data set, in order."""
    points = [DataPoint(dataset, position) for position in range(len(dataset))]
    return run_points(points, methods, skip_bad)


def run_points(
    points: Sequence[DataPoint], methods: Methods, skip_bad: bool = False
) -> Iterator[Record | SkippedPoint]:
    """Yield the record of every method at every point.

    Methods whose predictions do not depend on other points share the work that they have in common; the
    others get batches in order.
    """
    single = {name: method for name, method in methods.items() if is_independent(method)}
    if single:
        yield from _share_work(points, single, skip_bad)
    for name, method in methods.items():
        if name not in single:
            yield from _in_batches(points, name, method, skip_bad)


def is_independent(method: Method[Any]) -> bool:
    """Return whether the method predicts a point the same whatever the other points are."""
    return method.points == 1 and not method.online


def _share_work(
    points: Sequence[DataPoint], methods: Methods, skip_bad: bool
) -> Iterator[Record | SkippedPoint]:
    """Run methods that take several points at once on some points, then the others point by point."""
    size = max(method.batch_points for method in methods.values())
    for start in range(0, len(points), size):
        read = yield from _readable(points[start : start + size], methods, skip_bad)
        works = [SharedWork() for _ in read]
        for name, method in methods.items():
            if (count := method.batch_points) > 1:
                for first in range(0, len(read), count):
                    batch = slice(first, first + count)
                    yield from _predict(name, method, read[batch], works[batch])
        for one in read:
            work = works.pop(0)  # it may hold many views
            for name, method in methods.items():
                if method.batch_points == 1:
                    yield from _predict(name, method, [one], [work])


def _in_batches(
    points: Sequence[DataPoint], name: str, method: Method[Any], skip_bad: bool
) -> Iterator[Record | SkippedPoint]:
    """Run one method on batches in order; an online method starts from the source."""
    method.reset()
    for start in range(0, len(points), method.points):
        batch = points[start : start + method.points]
        read = yield from _readable(batch, {name: method}, skip_bad)
        if read:
            yield from _predict(name, method, read, [SharedWork() for _ in read])


def _predict(
    name: str, method: Method[Any], batch: Sequence[ReadPoint], works: Sequence[SharedWork]
) -> Iterator[Record]:
    """Yield the records of points that the method takes at once."""
    for work in works:
        work.start_method()
    ids = [dataset.id(position) for (dataset, position), _ in batch]
    predictions = method.predict_points([read.point for read in batch], ids, works)
    cost = mean_cost(works)
    for read, prediction in zip(batch, predictions, strict=True):
        yield make_record(*read.at, name, prediction, cost)


def _readable(
    points: Sequence[DataPoint], methods: Methods, skip_bad: bool
) -> Generator[SkippedPoint, None, list[ReadPoint]]:
    """Return the points with their images; yield those that cannot be read."""
    found: list[ReadPoint] = []
    for at in points:
        point = _read(*at, next(iter(methods.values())), skip_bad)
        if isinstance(point, SkippedPoint):
            yield point
        else:
            found.append(ReadPoint(at, point))
    return found


def _read(dataset: Dataset, position: int, method: Method[Any], skip_bad: bool) -> Point | SkippedPoint:
    try:
        return method.classifier.point(dataset[position].image)
    except InputError as error:
        if not skip_bad:
            raise InputError(f"{error} (--skip-bad leaves such images out)") from None
        sample = str(dataset.id(position))
        return SkippedPoint(dataset.name, dataset.corruption, dataset.severity, position, sample, str(error))
