"""Read weights files as data, never as code."""

from collections.abc import Iterable
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from memo_tta.errors import CheckpointError
from memo_tta.registry import Registry

MAX_LISTED = 3


def _read_npz(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def _read_torch(path: Path) -> dict[str, Tensor]:
    return torch.load(path, map_location="cpu", weights_only=True)


READERS = Registry(
    "weights format",
    {
        ".npz": _read_npz,
        ".safetensors": load_file,
        ".pth": _read_torch,
        ".pt": _read_torch,
        ".bin": _read_torch,
    },
)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a weights file by name."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such weights file")
    read = READERS[path.suffix.lower()]
    try:
        state = read(path)
    except UnpicklingError as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"{path}: refused, it holds more than plain weights ({reason})") from None
    except Exception as error:  # what a decoder raises on damaged bytes is anybody's guess
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path}: not a whole {path.suffix} file ({reason})") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CheckpointError(f"{path}: expected a state dict, tensors by name")
    return state


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Put the file's tensors into the module; every key and shape must match."""
    path = Path(path)
    state, own = read_state_dict(path), module.state_dict()
    problems = _listed("missing", own.keys() - state.keys())
    problems += _listed("unexpected", state.keys() - own.keys())
    problems += _listed(
        "of another shape",
        [
            f"{key} (expected {tuple(own[key].shape)}, got {tuple(state[key].shape)})"
            for key in own.keys() & state.keys()
            if own[key].shape != state[key].shape
        ],
    )
    if problems:
        raise CheckpointError(f"{path}: does not fit {type(module).__name__}: {'; '.join(problems)}")
    module.load_state_dict(state)


def _listed(kind: str, keys: Iterable[str]) -> list[str]:
    names = sorted(keys)
    if not names:
        return []
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return [f"{kind}: {', '.join(names[:MAX_LISTED])}{more}"]
