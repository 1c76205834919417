"""Read weights files as data, never as code."""

import re
import warnings
from pathlib import Path
from zipfile import is_zipfile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from memo_tta.errors import CheckpointError, UnknownName
from memo_tta.models.state_dict import WRAPPERS, find_state_dict, first_few, misfit, strip_prefixes
from memo_tta.registry import Registry

# How torch and numpy name what they would have to run.
MORE_THAN_WEIGHTS = re.compile(r"GLOBAL [\w.]+|TorchScript archive|legacy \.tar format|Object arrays")
UNPICKLER_ERROR = re.compile(r"WeightsUnpickler error:\s*(.+)")
START = 40  # bytes, enough to recognise a text


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Put the file's tensors into the module, which changes only if every key and shape fits."""
    path, target = Path(path), module.state_dict()
    own = {key: value for key, value in target.items() if isinstance(value, Tensor)}
    state = strip_prefixes(read_state_dict(path), own)
    if problem := misfit(state, own, type(module).__name__):
        raise CheckpointError(f"{path}: {problem}")
    try:  # a tensor that cannot be copied must show before the first one is replaced
        target |= {key: torch.empty_like(own[key]).copy_(state[key]) for key in own.keys() & state.keys()}
    except RuntimeError as error:
        raise CheckpointError(f"{path}: holds tensors without plain values ({_reason(error)})") from None
    module.load_state_dict(target)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a weights file by name, without what else a training script saved."""
    start = _first_bytes(path)
    try:
        read = READERS[path.suffix.lower()]
    except UnknownName as error:
        raise CheckpointError(f"{path}: {error}") from None
    if not start:
        raise CheckpointError(f"{path}: an empty file")
    try:
        content = read(path)
    except Exception as error:  # what a decoder raises on damaged bytes is anybody's guess
        raise CheckpointError(f"{path}: {_explain(error, start, path.suffix)}") from None
    state = find_state_dict(content)
    if not state:
        kind = type(content).__name__
        got = f"{kind} of {first_few(content) or 'nothing'}" if isinstance(content, dict) else kind
        raise CheckpointError(
            f"{path}: expected tensors by name, at the top or under {', '.join(WRAPPERS)}; got {got}"
        )
    return state


def _first_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise CheckpointError(f"{path}: a directory, expected a weights file")
        if not path.is_file():
            raise CheckpointError(f"{path}: no such weights file")
        with path.open("rb") as file:
            return file.read(START)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None


def _read_npz(path: Path) -> dict[str, Tensor]:
    if not is_zipfile(path):
        raise ValueError("no whole zip archive")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind in "biuf"}


def _read_torch(path: Path) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what it then refuses
        return torch.load(path, map_location="cpu", weights_only=True)


READERS = Registry(
    "weights format",
    {
        ".npz": _read_npz,
        ".safetensors": load_file,
        **dict.fromkeys((".pth", ".pt", ".bin", ".tar"), _read_torch),
    },
)


def _explain(error: Exception, start: bytes, suffix: str) -> str:
    """Why a file could not be decoded, in the user's terms."""
    if more := MORE_THAN_WEIGHTS.search(str(error)):
        return (
            f"refused, it holds more than plain weights ({more[0]}); "
            "save the tensors alone where it was made: torch.save(model.state_dict(), PATH)"
        )
    text = " ".join(start.decode("latin-1").split())
    if text.isascii() and text.isprintable():  # an error page, or a pointer to a file that was not fetched
        return f"a text file, expected weights (it begins with {text!r})"
    return f"damaged, or not a {suffix} file ({_reason(error)})"


def _reason(error: Exception) -> str:
    """The first sentence of a decoder's message."""
    told = UNPICKLER_ERROR.search(str(error))
    lines = (told[1] if told else str(error)).splitlines()
    return lines[0].split(". ")[0] if lines else type(error).__name__
