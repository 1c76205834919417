"""A data set as code sees it: points, read when they are asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from memo_tta.seeding import SampleId

Metric = Literal["error", "mce"]  # mce: error relative to AlexNet's, averaged over corruptions


class Images(Protocol):
    """Anything that gives uint8 (height, width, 3) arrays by place: an array, a mapped file, a folder."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> np.ndarray: ...


class Sample(NamedTuple):
    id: SampleId
    image: np.ndarray  # uint8 (height, width, 3)
    label: int  # index into the data set's labels


@dataclass(frozen=True)
class Dataset:
    """Labelled images of one kind of shift; `for id, image, label in dataset` reads one after the other."""

    name: str
    images: Images
    y: np.ndarray
    labels: Sequence[str]
    ids: Sequence[SampleId] | None = None  # None: the places
    corruption: str = ""
    severity: int = 0
    classes: Sequence[int] | None = None  # those of the model's classes that `labels` are; None: all
    cropped: bool = False  # the images are what a model sees: no resizing before the crop
    metric: Metric = "error"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> Sample:
        return Sample(self.id(place), np.asarray(self.images[place]), int(self.y[place]))

    def __iter__(self) -> Iterator[Sample]:
        return (self[place] for place in range(len(self)))

    def id(self, place: int) -> SampleId:
        return place if self.ids is None else self.ids[place]

    def take(self, places: Sequence[int] | np.ndarray) -> "Dataset":
        """Some of the points, in this order, with their ids; nothing is read yet."""
        places = [int(place) for place in places]
        ids = [self.id(place) for place in places]
        return replace(self, images=Chosen(self.images, places), y=self.y[places], ids=ids)


@dataclass(frozen=True)
class Chosen:
    """Images at some places of others."""

    images: Images
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: int) -> np.ndarray:
        return self.images[self.places[place]]
