"""A data set as code sees it: points, read when they are asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from memo_tta.seeding import SampleId, sample_rng

Metric = Literal["error", "mce"]  # mce: error relative to AlexNet's, averaged over corruptions


class Images(Protocol):
    """Anything that gives uint8 (height, width, 3) arrays by position: an array, a mapped file, a folder."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int, /) -> np.ndarray: ...


class Sample(NamedTuple):
    id: SampleId
    image: np.ndarray  # uint8 (height, width, 3)
    target: int  # index into the data set's labels


@dataclass(frozen=True)
class Dataset:
    """Labelled images of one kind of shift; `for id, image, target in dataset` reads one after the other."""

    name: str
    images: Images
    targets: np.ndarray
    labels: Sequence[str]
    ids: Sequence[SampleId] | None = None  # None: the positions
    corruption: str = ""
    severity: int = 0
    classes: Sequence[int] | None = None  # those of the model's classes that `labels` are; None: all
    cropped: bool = False  # the images are what a model sees: no resizing before the crop
    metric: Metric = "error"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> Sample:
        return Sample(self.id(position), np.asarray(self.images[position]), int(self.targets[position]))

    def __iter__(self) -> Iterator[Sample]:
        return (self[position] for position in range(len(self)))

    def id(self, position: int) -> SampleId:
        return position if self.ids is None else self.ids[position]

    def take(self, positions: Sequence[int] | np.ndarray) -> "Dataset":
        """Some of the points, in this order, with their ids; nothing is read yet."""
        positions = [int(position) for position in positions]
        ids = [self.id(position) for position in positions]
        return replace(
            self, images=SubsetImages(self.images, positions), targets=self.targets[positions], ids=ids
        )


@dataclass(frozen=True)
class SubsetImages:
    """Images at some positions of others."""

    images: Images
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: int) -> np.ndarray:
        return self.images[self.positions[position]]


def balanced(dataset: Dataset, count: int, seed: int = 0) -> Dataset:
    """Return `count` points spread as evenly over the classes as possible; the seed decides which."""
    order = sample_rng(seed, "balanced").permutation(len(dataset))
    targets = dataset.targets[order]
    rank = np.empty(len(order), int)  # a point's rank within its class
    for target in np.unique(targets):
        rank[targets == target] = np.arange((targets == target).sum())
    chosen = order[np.argsort(rank, kind="stable")[:count]]
    return dataset.take(np.sort(chosen))
