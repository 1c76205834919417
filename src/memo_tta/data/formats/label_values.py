"""Class names and indices from the labels that a file gives for its images: names or numbers."""

from collections.abc import Sequence

import numpy as np

from memo_tta.data.formats.arrays import MAX_CLASSES
from memo_tta.errors import DataError

LABEL_NAMES = ("label", "class", "target")  # of columns and keys with labels


def classes_of(source: str, values: Sequence[object], ids: Sequence[object]) -> tuple[list[str], np.ndarray]:
    """Return the class names, and the class index of each value: a number is an index, a text a name.

    Errors name the source and the id of the image.
    """
    for value, sample in zip(values, ids, strict=True):
        if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip():
            raise DataError(f"{source}: {sample}: expected a class name or index as label, got {value!r}")
    texts = [str(value).strip() for value in values]
    if not all(text.removeprefix("-").isdecimal() for text in texts):
        labels, targets = np.unique(texts, return_inverse=True)
        return labels.tolist(), targets.astype(np.int64)
    for text, sample in zip(texts, ids, strict=True):
        if not 0 <= int(text) < MAX_CLASSES:
            raise DataError(f"{source}: {sample}: expected a label from 0 to {MAX_CLASSES - 1}, got {text}")
    targets = np.array([int(text) for text in texts], np.int64)
    return [str(index) for index in range(int(targets.max()) + 1)], targets
