"""Run methods over labelled points. Here, and nowhere else, labels meet predictions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from memo_tta.data.dataset import Dataset
from memo_tta.errors import InputError
from memo_tta.evaluation.record import Record, record
from memo_tta.methods import Method
from memo_tta.methods.ledger import Cost, Ledger
from memo_tta.models.classifier import Point

Methods = Mapping[str, Method[Any]]


@dataclass(frozen=True)
class Skipped:
    """A point that could not be read, and why."""

    dataset: str
    corruption: str
    severity: int
    place: int
    sample: str
    reason: str


@dataclass(frozen=True)
class SetAside:
    """A record that is missing because its point failed again and again, and how."""

    dataset: str
    corruption: str
    severity: int
    method: str
    place: int
    sample: str
    reason: str


def run(
    dataset: Dataset, methods: Methods, places: Sequence[int] | None = None, skip_bad: bool = False
) -> Iterator[Record | Skipped]:
    """Every method at every place: those of one point share their work, others get batches in order."""
    places = range(len(dataset)) if places is None else places
    single = {name: method for name, method in methods.items() if method.points == 1 and not method.online}
    if single:
        yield from _point_by_point(dataset, single, places, skip_bad)
    for name, method in methods.items():
        if name not in single:
            yield from _in_batches(dataset, name, method, places, skip_bad)


def _point_by_point(
    dataset: Dataset, methods: Methods, places: Sequence[int], skip_bad: bool
) -> Iterator[Record | Skipped]:
    for place in places:
        point = _read(dataset, place, next(iter(methods.values())), skip_bad)
        if isinstance(point, Skipped):
            yield point
            continue
        ledger = Ledger()
        for name, method in methods.items():
            ledger.open()
            (prediction,) = method.predict_points([point], [dataset.id(place)], ledger)
            yield record(dataset, place, name, prediction, ledger.close())


def _in_batches(
    dataset: Dataset, name: str, method: Method[Any], places: Sequence[int], skip_bad: bool
) -> Iterator[Record | Skipped]:
    """Batches in order, the last one shorter; an online method starts from the source."""
    method.reset()
    for start in range(0, len(places), method.points):
        points: dict[int, Point] = {}
        for place in places[start : start + method.points]:
            point = _read(dataset, place, method, skip_bad)
            if isinstance(point, Skipped):
                yield point
            else:
                points[place] = point
        if points:
            ledger = Ledger()
            ids = [dataset.id(place) for place in points]
            predictions = method.predict_points(list(points.values()), ids, ledger)
            share = Cost(*(seconds / len(points) for seconds in astuple(ledger.close())))
            for place, prediction in zip(points, predictions, strict=True):
                yield record(dataset, place, name, prediction, share)


def _read(dataset: Dataset, place: int, method: Method[Any], skip_bad: bool) -> Point | Skipped:
    try:
        return method.classifier.point(dataset[place].image)
    except InputError as error:
        if not skip_bad:
            raise InputError(f"{error} (--skip-bad goes on without it)") from None
        sample = str(dataset.id(place))
        return Skipped(dataset.name, dataset.corruption, dataset.severity, place, sample, str(error))
