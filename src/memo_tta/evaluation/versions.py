"""The versions of the software that computed a run: more than one if it was resumed after an update."""

import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from memo_tta import __version__

KEY = "versions"  # of the metadata; "versions 2" and so on are those of later resumes
SOFTWARE = ("memo_tta", "torch", "numpy")  # a change of one may change the last digits of a record

Versions = Mapping[str, str]


def current_versions() -> Versions:
    """Return the versions that this process computes with."""
    return {
        "memo_tta": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def run_versions(metadata: Mapping[str, Any]) -> list[Versions]:
    """Return the versions that a run was computed with, in the order of their use."""
    keys = (key for key in metadata if key.partition(" ")[0] == KEY)
    return [metadata[key] for key in sorted(keys, key=lambda key: (len(key), key))]


def next_key(metadata: Mapping[str, Any]) -> str:
    """Return the key under which the versions of another resume are stored."""
    return f"{KEY} {len(run_versions(metadata)) + 1}"


def differences(versions: Sequence[Versions]) -> dict[str, list[str]]:
    """Return the versions of each software of which there are several."""
    found = {name: list(dict.fromkeys(each.get(name, "?") for each in versions)) for name in SOFTWARE}
    return {name: values for name, values in found.items() if len(values) > 1}
