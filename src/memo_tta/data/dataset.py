"""A data set as code sees it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """Images, uint8 (n, height, width, 3), possibly mapped from a file; labels index `labels`."""

    name: str
    x: np.ndarray
    y: np.ndarray
    labels: Sequence[str]

    def __len__(self) -> int:
        return len(self.x)


def data_folder() -> Path:
    """$MEMO_DATA, or ~/.cache/memo-tta."""
    return Path(os.environ.get("MEMO_DATA") or Path.home() / ".cache" / "memo-tta")
