"""A labelled data set whose images are read on demand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from memo_tta.seeding import SampleId, sample_rng

Metric = Literal["error", "mce"]  # mce: mean corruption error, relative to AlexNet


class Images(Protocol):
    """A sequence of uint8 (height, width, 3) images: an array, a memory-mapped file, a folder."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int, /) -> np.ndarray: ...


class Sample(NamedTuple):
    """One labelled image."""

    id: SampleId
    image: np.ndarray  # uint8 (height, width, 3)
    target: int  # index into the data set's labels


@dataclass(frozen=True)
class Dataset:
    """Labelled images under one shift; iteration yields (id, image, target) one at a time."""

    name: str
    images: Images
    targets: np.ndarray
    labels: Sequence[str]
    ids: Sequence[SampleId] | None = None  # None: positions are the ids
    corruption: str = ""
    severity: int = 0
    classes: Sequence[int] | None = None  # model class index of each label; None: all classes, in order
    cropped: bool = False  # images were resized and cropped already, as ImageNet-C's were
    metric: Metric = "error"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> Sample:
        return Sample(self.id(position), np.asarray(self.images[position]), int(self.targets[position]))

    def __iter__(self) -> Iterator[Sample]:
        return (self[position] for position in range(len(self)))

    def __repr__(self) -> str:
        shift = f" under {self.corruption}, level {self.severity}" if self.corruption else ""
        return f"Dataset({self.name}{shift}, {len(self)} images, {len(self.labels)} classes)"

    def id(self, position: int) -> SampleId:
        """Return the id that seeds the random numbers of this sample."""
        return position if self.ids is None else self.ids[position]

    def take(self, positions: Sequence[int] | np.ndarray) -> "Dataset":
        """Return the samples at these positions, in this order, with their ids; reads no image."""
        positions = [int(position) for position in positions]
        ids = [self.id(position) for position in positions]
        return replace(
            self, images=SubsetImages(self.images, positions), targets=self.targets[positions], ids=ids
        )


@dataclass(frozen=True)
class SubsetImages:
    """Selected positions of other images."""

    images: Images
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: int) -> np.ndarray:
        return self.images[self.positions[position]]


def balanced(dataset: Dataset, count: int, seed: int = 0, skip: int = 0) -> Dataset:
    """Return `count` samples, chosen at random, spread as evenly over the classes as possible.

    A larger count adds samples to those of a smaller one. The first `skip` of them are left out.
    """
    order = sample_rng(seed, "balanced").permutation(len(dataset))
    targets = dataset.targets[order]
    rank = np.empty(len(order), int)  # of a sample within its class
    for target in np.unique(targets):
        rank[targets == target] = np.arange((targets == target).sum())
    chosen = order[np.argsort(rank, kind="stable")[skip:count]]
    return dataset.take(np.sort(chosen))
