"""Arguments of calls from Python, checked and in the form that a run stores."""

from os import PathLike, fspath
from typing import Any

import numpy as np

from memo_tta.data.dataset import Dataset
from memo_tta.errors import ConfigError, DataError
from memo_tta.models.classifier import Classifier

Spec = str | PathLike[str]  # a name of `memo datasets`, a path, or one of them +CORRUPTION:SEVERITY


def data_specs(data: Any) -> list[str]:
    """Return data sets as the command line names them."""
    several = data if isinstance(data, list | tuple) else [data]
    if not several:
        raise DataError("data: expected a name, a path or a list of them, got none")
    return [data_spec("data", one, "a name, a path or a list of them") for one in several]


def data_spec(name: str, data: Any, expected: str = "a name or a path") -> str:
    """Return a data set as the command line names it; `name` is the argument's."""
    if isinstance(data, Dataset):
        raise DataError(
            f"{name}: expected {expected}, got the data set {data.name!r}: give what you gave load_dataset"
        )
    if not isinstance(data, str | PathLike):
        raise DataError(f"{name}: expected {expected}, got {type(data).__name__}")
    return fspath(data)


def model_name(classifier: Any) -> str:
    """Return the name of a classifier, or of the model that is to be loaded."""
    if isinstance(classifier, str):
        return classifier
    if not isinstance(classifier, Classifier):
        raise ConfigError(
            f"classifier: expected a Classifier or the name of a model, got {type(classifier).__name__}: "
            "wrap a module in mt.Classifier"
        )
    return classifier.name


def several(name: str, values: Any) -> list[Any]:
    """Return one value, or several without repetition, as a list that JSON has."""
    listed = [values] if isinstance(values, str | int | np.integer) else list(dict.fromkeys(values))
    if not listed:
        raise ConfigError(f"{name}: expected at least one, got none")
    return [int(value) if isinstance(value, np.integer) else value for value in listed]


def whole_number(name: str, value: Any, lowest: int) -> int:
    """Return the value as an int; raise for anything else, and for what is less than `lowest`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < lowest:
        raise ConfigError(f"{name}: expected a whole number of at least {lowest}, got {value!r}")
    return int(value)
