"""The data sets that have a name: getting them, and reading them."""

import numpy as np

from memo_tta.class_lists import class_list
from memo_tta.data.dataset import Dataset, data_folder
from memo_tta.errors import DataError
from memo_tta.registry import unknown_name

FETCHABLE = ("cifar10",)


def load_split(name: str, split: str) -> Dataset:
    """The "train" or "test" images of a data set, mapped from disk, not read into memory."""
    if name not in FETCHABLE:
        raise unknown_name("data set", name, FETCHABLE)
    folder = data_folder() / name
    if not folder.is_dir():
        raise DataError(f"{name}: not found in {folder}: get it with `memo data get {name}`")
    x, y = (np.load(folder / f"{split}_{part}.npy", mmap_mode="r") for part in "xy")
    return Dataset(name, x, y, class_list(name))
