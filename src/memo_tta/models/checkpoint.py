"""Load weights files without running code from them."""

import io
import pickletools
import re
import warnings
from contextlib import suppress
from pathlib import Path
from zipfile import is_zipfile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from memo_tta.archives import open_zip, read_array_header, read_member
from memo_tta.errors import CheckpointError, UnknownName
from memo_tta.models.state_dict import WRAPPERS, explain_mismatch, find_state_dict, first_few, strip_prefixes
from memo_tta.models.tensor_values import converted_values, not_plain
from memo_tta.registry import Registry

# Parts of messages about content that only running code could load.
MORE_THAN_WEIGHTS = re.compile(r"GLOBAL [\w.]+|TorchScript archive|legacy \.tar format|Python objects")
UNPICKLER_ERROR = re.compile(r"WeightsUnpickler error:\s*(.+)")
MAX_REASON = 200  # characters of a decoder's message
START = 40  # bytes, enough to recognise a text file
ZIP_START = b"PK\x03\x04"
MAX_PICKLE = 1 << 21  # bytes; those of a network with 1,000 tensors take 150,000
LEGACY_PICKLES = 5  # of a .pth file without zip: magic number, version, machine, tensors, storages
# torch lets pickles call these, and they return as much memory as they are asked for.
GREEDY = ("_codecs encode", "builtins bytearray", "__builtin__ bytearray")
MAX_SAFETENSORS_HEADER = 1 << 22  # bytes; 100 for each tensor are usual


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Load the file's tensors into the module; raise and leave it unchanged unless all of them fit."""
    path, complete = Path(path), module.state_dict()
    expected = {key: value for key, value in complete.items() if isinstance(value, Tensor)}
    state = strip_prefixes(read_state_dict(path), expected)
    if problem := explain_mismatch(state, expected, type(module).__name__):
        raise CheckpointError(f"{path}: {problem}")
    parameters = frozenset(name for name, _ in module.named_parameters(remove_duplicate=False))
    try:
        complete.update(converted_values(state, expected, parameters))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
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
    except MemoryError:
        raise
    except Exception as error:  # decoders raise all kinds of exceptions on damaged files
        raise CheckpointError(f"{path}: {_explain(error, start, path.suffix)}") from None
    state = find_state_dict(content)
    if not state:
        kind = type(content).__name__
        got = f"{kind} of {first_few(content) or 'nothing'}" if isinstance(content, dict) else kind
        raise CheckpointError(
            f"{path}: expected tensors by name, at the top level or under {', '.join(WRAPPERS)}; got {got}"
        )
    for key, tensor in state.items():
        if problem := not_plain(tensor):
            raise CheckpointError(f"{path}: {first_few([key])}: {problem}")
    return state


def _first_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise CheckpointError(f"{path}: is a directory, expected a weights file")
        if not path.is_file():
            problem = (
                "is a device or a pipe, expected a weights file" if path.exists() else "no such weights file"
            )
            raise CheckpointError(f"{path}: {problem}")
        with path.open("rb") as file:
            return file.read(START)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None


def _read_npz(path: Path) -> dict[str, Tensor]:
    if not is_zipfile(path):
        raise ValueError("not a complete zip archive")
    tensors: dict[str, Tensor] = {}
    with open_zip(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                header = read_array_header(file, member.file_size)
            if header.dtype.kind not in "biufc":  # words
                continue
            with archive.open(member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            tensors[member.filename.removesuffix(".npy")] = torch.from_numpy(array)
    return tensors


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if header > MAX_SAFETENSORS_HEADER:
        raise ValueError(f"its header has {header} bytes, expected at most {MAX_SAFETENSORS_HEADER}")
    return load_file(path)


def _read_torch(path: Path) -> object:
    with path.open("rb") as file:
        start = file.read(MAX_PICKLE)
    if start.startswith(ZIP_START):
        _check_zip(path)
    else:
        _check_pickles(start, LEGACY_PICKLES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch also warns about files that it then refuses
        return torch.load(path, map_location="cpu", weights_only=True)


def _check_zip(path: Path) -> None:
    """Raise unless every member has its checksum, which torch does not verify, and the pickle is plain."""
    with open_zip(path) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} does not match its checksum")
        for name in archive.namelist():
            if name.endswith("data.pkl"):
                _check_pickles(read_member(archive, name, MAX_PICKLE - 1), 1)


def _check_pickles(content: bytes, count: int) -> None:
    """Raise if the first pickles are so long, or call such functions, that they could fill the memory."""
    file, called = io.BytesIO(content), set[object]()
    with suppress(ValueError):  # a damaged pickle: torch stops there, and says more about it
        for _ in range(count):
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name == "GLOBAL":
                    called.add(argument)
    if file.tell() >= MAX_PICKLE:
        raise ValueError(f"its pickles have more than {MAX_PICKLE} bytes")
    for name in GREEDY:
        if name in called:
            raise ValueError(f"GLOBAL {name.replace(' ', '.')}")


READERS = Registry(
    "weights format",
    {
        ".npz": _read_npz,
        ".safetensors": _read_safetensors,
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
    return lines[0].split(". ")[0][:MAX_REASON] if lines else type(error).__name__
