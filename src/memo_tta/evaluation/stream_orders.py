"""Orders in which points reach methods that learn on, or that take several points at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.registry import Registry
from memo_tta.seeding import sample_rng

Parts = Mapping[int, Dataset]  # parts of the data by their index in the job


@dataclass(frozen=True, eq=False)
class DataStream:
    """Points in the order in which a method gets them; it starts from the source model at the first one."""

    parts: np.ndarray  # (points,) index of each point's part
    positions: np.ndarray  # (points,) its position in that part

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def members(self) -> list[int]:
        """The parts that the stream has points of."""
        return np.unique(self.parts).tolist()

    def points(self, places: range) -> Iterator[tuple[int, int]]:
        """Yield part and position of the points at these places of the stream."""
        span = slice(places.start, places.stop)
        return zip(self.parts[span].tolist(), self.positions[span].tolist(), strict=True)

    def by_part(self, places: range) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each part with the positions that these places of the stream have there."""
        parts, positions = (each[places.start : places.stop] for each in (self.parts, self.positions))
        for part in np.unique(parts):
            yield int(part), positions[parts == part]


@dataclass(frozen=True)
class Order:
    """A row of the table: how parts are grouped into streams, and the order of points within one."""

    about: str
    group: Callable[[Sequence[Dataset]], list[Parts]]
    arrange: Callable[[Parts, int], DataStream]

    def streams(self, parts: Sequence[Dataset], seed: int) -> list[DataStream]:
        """Return the streams; together they have every point once."""
        return [self.arrange(group, seed) for group in self.group(parts)]


def _by_part(parts: Sequence[Dataset]) -> list[Parts]:
    return [{index: part} for index, part in enumerate(parts)]


def _by_dataset(parts: Sequence[Dataset]) -> list[Parts]:
    groups: dict[str, dict[int, Dataset]] = {}
    for index, part in enumerate(parts):
        groups.setdefault(part.name, {})[index] = part
    return list(groups.values())


def _as_stored(parts: Parts, _seed: int) -> DataStream:
    return _one_after_the_other({index: np.arange(len(part)) for index, part in parts.items()})


def _at_random(parts: Parts, seed: int) -> DataStream:
    return _one_after_the_other({index: _shuffled(part, seed) for index, part in parts.items()})


def _by_class(parts: Parts, seed: int) -> DataStream:
    """Sort each part by class; the order within a class is random."""
    orders = {index: _shuffled(part, seed) for index, part in parts.items()}
    return _one_after_the_other(
        {
            index: order[np.argsort(parts[index].targets[order], kind="stable")]
            for index, order in orders.items()
        }
    )


def _by_level(parts: Parts, seed: int) -> DataStream:
    """Put the corruptions in the job's order, the levels of each in rising order, and images at random."""
    corruptions = list(dict.fromkeys(part.corruption for part in parts.values()))
    rising = sorted(parts.items(), key=lambda row: (corruptions.index(row[1].corruption), row[1].severity))
    return _at_random(dict(rising), seed)


def _interleaved(parts: Parts, seed: int) -> DataStream:
    """Take the next point from a random part; each part is in the random order that it has alone."""
    (name,) = {part.name for part in parts.values()}
    taken = np.repeat(list(parts), [len(part) for part in parts.values()])
    taken = sample_rng(seed, f"order of {name}").permutation(taken)
    positions = np.empty(len(taken), int)
    for index, part in parts.items():
        positions[taken == index] = _shuffled(part, seed)
    return _stream(taken, positions)


def _shuffled(part: Dataset, seed: int) -> np.ndarray:
    name = f"order of {part.name} {part.corruption} {part.severity}"
    return sample_rng(seed, name).permutation(len(part))


def _one_after_the_other(orders: Mapping[int, np.ndarray]) -> DataStream:
    parts = np.repeat(list(orders), [len(order) for order in orders.values()])
    return _stream(parts, np.concatenate(list(orders.values())))


def _stream(parts: np.ndarray, positions: np.ndarray) -> DataStream:
    return DataStream(parts.astype(np.int32), positions.astype(np.int32))


ORDERS = Registry(
    "order",
    {
        "iid": Order("images at random, each corruption and level a stream of its own", _by_part, _at_random),
        "sorted": Order(
            "images sorted by class, each corruption and level a stream of its own", _by_part, _by_class
        ),
        "mixed": Order(
            "all corruptions and levels of a data set interleaved at random, in one stream",
            _by_dataset,
            _interleaved,
        ),
        "gradual": Order(
            "one corruption of a data set after the other, each at rising levels, in one stream",
            _by_dataset,
            _by_level,
        ),
        "data": Order(
            "images as the data set has them, each corruption and level a stream of its own",
            _by_part,
            _as_stored,
        ),
    },
)
