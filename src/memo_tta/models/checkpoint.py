"""Load weights files without running code from them."""

import re
import warnings
from pathlib import Path
from zipfile import is_zipfile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from memo_tta.errors import CheckpointError, UnknownName
from memo_tta.models.state_dict import WRAPPERS, explain_mismatch, find_state_dict, first_few, strip_prefixes
from memo_tta.registry import Registry

# Parts of torch's and numpy's messages about content that only running code could load.
MORE_THAN_WEIGHTS = re.compile(r"GLOBAL [\w.]+|TorchScript archive|legacy \.tar format|Object arrays")
UNPICKLER_ERROR = re.compile(r"WeightsUnpickler error:\s*(.+)")
START = 40  # bytes, enough to recognise a text file


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Load the file's tensors into the module; raise and leave it unchanged unless all of them fit."""
    path, complete = Path(path), module.state_dict()
    expected = {key: value for key, value in complete.items() if isinstance(value, Tensor)}
    state = strip_prefixes(read_state_dict(path), expected)
    if problem := explain_mismatch(state, expected, type(module).__name__):
        raise CheckpointError(f"{path}: {problem}")
    try:  # copied first, so that a tensor that cannot be copied leaves the module unchanged
        for key in expected.keys() & state.keys():
            complete[key] = torch.empty_like(expected[key]).copy_(state[key])
    except RuntimeError as error:
        raise CheckpointError(f"{path}: holds tensors that cannot be copied ({_reason(error)})") from None
    module.load_state_dict(complete)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weights file by name, without anything else that a training script saved."""
    start = _first_bytes(path)
    try:
        read = READERS[path.suffix.lower()]
    except UnknownName as error:
        raise CheckpointError(f"{path}: {error}") from None
    if not start:
        raise CheckpointError(f"{path}: the file is empty")
    try:
        content = read(path)
    except Exception as error:  # decoders raise all kinds of exceptions on damaged files
        raise CheckpointError(f"{path}: {_explain(error, start, path.suffix)}") from None
    state = find_state_dict(content)
    if not state:
        kind = type(content).__name__
        got = f"{kind} of {first_few(content) or 'nothing'}" if isinstance(content, dict) else kind
        raise CheckpointError(
            f"{path}: expected tensors by name, at the top level or under {', '.join(WRAPPERS)}; got {got}"
        )
    return state


def _first_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise CheckpointError(f"{path}: is a directory, expected a weights file")
        if not path.is_file():
            raise CheckpointError(f"{path}: no such weights file")
        with path.open("rb") as file:
            return file.read(START)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None


def _read_npz(path: Path) -> dict[str, Tensor]:
    if not is_zipfile(path):
        raise ValueError("not a complete zip archive")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind in "biuf"}


def _read_torch(path: Path) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch also warns about files that it then refuses
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
    """Return why a file could not be decoded, and what to do."""
    if more := MORE_THAN_WEIGHTS.search(str(error)):
        return (
            f"refused, because it holds more than plain weights ({more[0]}): "
            "where it was made, save only the tensors with torch.save(model.state_dict(), PATH)"
        )
    text = " ".join(start.decode("latin-1").split())
    if text.isascii() and text.isprintable():  # an error page, or a Git LFS pointer
        return f"is a text file, expected weights (it begins with {text!r})"
    return f"is damaged, or not a {suffix} file ({_reason(error)})"


def _reason(error: Exception) -> str:
    """Return the first sentence of a decoder's message."""
    unpickler_error = UNPICKLER_ERROR.search(str(error))
    lines = (unpickler_error[1] if unpickler_error else str(error)).splitlines()
    return lines[0].split(". ")[0] if lines else type(error).__name__
