"""Data sets of the Hugging Face hub, and folders that its library `datasets` has saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.data.formats.hub_rows import HubSpec, hub_library, open_rows
from memo_tta.data.formats.label_values import classes_of
from memo_tta.errors import DataError, InputError
from memo_tta.image import decode_image, read_image


@dataclass(frozen=True)
class HubImages:
    """The images of a column, each decoded on access; the library maps its files into memory.

    Another process gets the names of those files.
    """

    spec: HubSpec
    column: str
    cells: Any  # the rows of the column alone, with the content or the path of image files

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, position: int) -> np.ndarray:
        name = f"{self.spec}: image {position}"
        cell = self.cells[position][self.column]
        if cell is None or not (cell["bytes"] or cell["path"]):
            raise InputError(f"{name}: the row has none")
        return read_image(cell["path"]) if cell["bytes"] is None else decode_image(cell["bytes"], name)


def open_hub(spec: HubSpec) -> Dataset:
    """Open one split of a data set; its columns are found by their types unless they are named."""
    rows = open_rows(spec)
    image, label = _find_columns(spec, rows.features)
    labels, targets = _classes(spec, rows, label)
    cells = rows.select_columns([image]).cast_column(image, hub_library().Image(decode=False))
    return Dataset(spec.folder.name, HubImages(spec, image, cells), targets, labels)


def _find_columns(spec: HubSpec, features: Mapping[str, Any]) -> tuple[str, str]:
    """Return the columns with images and with labels."""
    library = hub_library()
    images = [name for name, feature in features.items() if isinstance(feature, library.Image)]
    labels = [name for name, feature in features.items() if isinstance(feature, library.ClassLabel)]
    if not spec.image_column:
        if len(images) != 1 or len(labels) != 1:
            example = spec._replace(
                image_column=next(iter(images), "IMAGE_COLUMN"),
                label_column=next(iter(labels), "LABEL_COLUMN"),
            )
            raise DataError(
                f"{spec}: expected one column of images and one of class labels, found images in "
                f"{_listed(images)} and labels in {_listed(labels)} among its columns {_listed(features)}: "
                f"name them, like {example}"
            )
        return images[0], labels[0]
    for column in (spec.image_column, spec.label_column):
        if column not in features:
            raise DataError(f"{spec}: has no column {column!r}, found {_listed(features)}")
    if spec.image_column not in images:
        raise DataError(f"{spec}: {spec.image_column}: expected a column of images: {_listed(images)}")
    return spec.image_column, spec.label_column


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"


def _classes(spec: HubSpec, rows: Any, column: str) -> tuple[list[str], np.ndarray]:
    """Return the class names, and the class index of each row."""
    values = rows.select_columns([column])[:][column]
    names = getattr(rows.features[column], "names", None)
    if names is None:
        return classes_of(str(spec), values, range(len(values)))
    for position, value in enumerate(values):
        if value is None or not 0 <= value < len(names):
            raise DataError(
                f"{spec}: image {position} has label {value}, expected 0..{len(names) - 1}: "
                "choose a split whose labels are public"
            )
    return list(names), np.array(values, np.int64)
