"""ONNX files, run by onnxruntime: inputs in, logits out, nothing to adapt."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memo_tta.errors import CheckpointError, ConfigError, MissingExtra, ModelError
from memo_tta.models.classifier import Classifier
from memo_tta.models.forward_only import ForwardOnly
from memo_tta.models.preprocessing import MAX_CHANNELS
from memo_tta.registry import unknown_name

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
}
SETTINGS = ("size", "mean", "std", "labels", "resize", "interpolation", "channels")  # in the file beside it
MAX_SETTINGS = 1 << 24  # bytes of that file
REQUIRED = ("size", "mean", "std")
BEGINNING = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .* failed:)?")
MAX_REASON = 300  # characters of onnxruntime's message
FATAL = 4  # of onnxruntime's log levels: what is wrong with a file is in the exception


def from_onnx(name: str, **given: Any) -> Classifier:
    """Return a classifier of an ONNX file; what is not given is read from the .json file beside it."""
    path = Path(name)
    settings = {**_settings_beside(path), **given}
    module = OnnxModule(path, len(settings["labels"]) if "labels" in settings else None)
    settings = {**module.known_settings(), **settings}
    missing = [name for name in REQUIRED if name not in settings]
    if module.takes_images and missing:
        raise ConfigError(
            f"{module.spec}: needs {', '.join(missing)}, as in training: give size=..., mean=..., std=..., "
            f"on the command line --size, --mean and --std, or write them to {path.with_suffix('.json')}"
        )
    classifier = Classifier(module, **settings)
    if classifier.preprocessing is not None:
        module.check_images(classifier.preprocessing.shape)
    return classifier


class OnnxModule(ForwardOnly):
    """The graph of an ONNX file; the file's digest is a buffer, by which fingerprints tell files apart."""

    def __init__(self, path: Path, classes: int | None = None):
        super().__init__()
        self.spec, self._path = f"onnx:{path}", path.absolute()
        self.register_buffer("digest", _digest(self.spec, self._path))
        self._sessions: dict[int, Any] = {}  # by number of threads
        session = self._session()
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in DTYPES:
            got = ", ".join(f"{one.name} ({one.type})" for one in inputs)
            raise ModelError(f"{self.spec}: expected one input of type {' or '.join(DTYPES)}, got {got}")
        self._input, self._dtype = inputs[0].name, np.dtype(DTYPES[inputs[0].type])
        # Sides that may vary are names or None; the shape is empty if nothing is known.
        self._shape = [side if isinstance(side, int) else None for side in inputs[0].shape] or [None] * 4
        self._output = self._find_logits(session.get_outputs(), classes)

    def __getstate__(self) -> dict[str, Any]:
        """Leave sessions out, which can be neither copied nor pickled."""
        return {**self.__dict__, "_sessions": {}}

    @property
    def takes_images(self) -> bool:
        return len(self._shape) == 4

    @property
    def _is_channels_last(self) -> bool:
        """Whether images are (height, width, channels): the last side is short, and the second is not."""
        second, last = self._shape[1], self._shape[-1]
        return self.takes_images and _is_short(last) and not _is_short(second)

    @property
    def _image_shape(self) -> list[int | None]:
        """Channels, height and width; None if one may vary."""
        _, *shape = self._shape
        return [shape[-1], *shape[:-1]] if self._is_channels_last else shape

    def known_settings(self) -> dict[str, Any]:
        """Return what the file itself says about its images."""
        if not self.takes_images:
            return {}
        channels, *size = self._image_shape
        known: dict[str, Any] = {} if channels is None else {"channels": channels}
        if None not in size:
            known["size"] = tuple(size)
        if self._dtype == np.uint8:
            known |= {"mean": 0.0, "std": 1 / 255}  # pixels as they are
        return known

    def check_images(self, shape: Sequence[int]) -> None:
        """Raise an error if the file does not take images of this shape, (channels, height, width)."""
        expected = self._image_shape if self.takes_images else []
        if len(expected) != len(shape) or any(
            side not in (None, given) for side, given in zip(expected, shape, strict=True)
        ):
            raise ModelError(
                f"{self.spec}: takes inputs of shape {self._shown_shape()}, "
                f"got the settings of images with {shape[0]} channels, {shape[1]} x {shape[2]}"
            )

    def forward(self, x: Tensor) -> Tensor:
        batch = self._batch(x.detach().cpu())
        session = self._session()
        try:
            parts = [
                session.run([self._output], {self._input: part})[0] for part in _parts(batch, self._shape[0])
            ]
        except Exception as error:  # onnxruntime's exceptions share no base class of their own
            raise ModelError(
                f"{self.spec}: takes inputs of shape {self._shown_shape()}, and cannot be run on "
                f"{list(batch.shape)} ({_reason(error)})"
            ) from None
        return torch.from_numpy(np.concatenate(parts)[: len(x)])

    def _batch(self, x: Tensor) -> np.ndarray:
        if self._is_channels_last:
            x = x.permute(0, 2, 3, 1)
        if self._dtype == np.uint8:
            x = x.round().clamp(0, 255)
        return np.ascontiguousarray(x.numpy().astype(self._dtype))

    def _session(self) -> Any:
        """Return the session that uses as many threads as torch."""
        threads = torch.get_num_threads()
        if threads not in self._sessions:
            self._sessions = {threads: _open(self.spec, self._path, threads)}
        return self._sessions[threads]

    def _find_logits(self, outputs: Sequence[Any], classes: int | None) -> str:
        """Return the name of the only output of shape (N, K)."""
        found = [one for one in outputs if len(one.shape) == 2]
        if len(found) > 1:
            found = [one for one in found if one.shape[1] == classes]
        if len(found) == 1 or len(outputs) == 1:
            return (found or list(outputs))[0].name
        shown = ", ".join(f"{one.name} {one.shape}" for one in outputs)
        raise ModelError(
            f"{self.spec}: expected one output of shape (N, K), got {shown}: "
            "give as many labels as the logits have classes, or export the model with its logits alone"
        )

    def _shown_shape(self) -> str:
        return f"[{', '.join('any' if side is None else str(side) for side in self._shape)}]"


def _is_short(side: int | None) -> bool:
    return side is not None and side <= MAX_CHANNELS


def _parts(batch: np.ndarray, size: int | None) -> Iterator[np.ndarray]:
    """Cut a batch into parts of a fixed size, and fill the last one up with zeros."""
    if size is None:
        yield batch
        return
    for start in range(0, len(batch), size):
        part = batch[start : start + size]
        padding = [(0, size - len(part))] + [(0, 0)] * (batch.ndim - 1)
        yield np.pad(part, padding)


def _open(spec: str, path: Path, threads: int) -> Any:
    try:
        runtime = import_module("onnxruntime")
    except ImportError:
        raise MissingExtra("onnxruntime is not installed: pip install 'memo-tta[onnx]'") from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = FATAL
    # Threads that wait in a loop would take the cores of other workers.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions share no base class of their own
        raise CheckpointError(f"{spec}: is damaged, or not an ONNX file ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """Return the first line of onnxruntime's message, without the codes and the path at its beginning."""
    lines = BEGINNING.sub("", str(error)).splitlines()
    return lines[0][:MAX_REASON] if lines else type(error).__name__


def _digest(spec: str, path: Path) -> Tensor:
    """Return a digest of the file, and of those that hold its weights, whose names begin like its own."""
    if not path.is_file():
        problem = "is a directory, expected an ONNX file" if path.is_dir() else "no such file"
        raise CheckpointError(f"{spec}: {problem}")
    digest = hashlib.blake2b(digest_size=16)
    try:
        for file in sorted(path.parent.glob(f"{path.name}*")):
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "blake2b").digest())
    except OSError as error:
        raise CheckpointError(f"{spec}: cannot be read ({error.strerror})") from None
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def _settings_beside(path: Path) -> dict[str, Any]:
    """Return the settings in the .json file of the same name; empty if there is none."""
    file = path.with_suffix(".json")
    if not file.is_file():
        return {}
    try:
        with file.open("rb") as opened:
            settings = json.loads(opened.read(MAX_SETTINGS))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError(f"{file}: not a JSON file ({error})") from None
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{file}: expected an object with {', '.join(SETTINGS)}, got {type(settings).__name__}"
        )
    for name in settings:
        if name not in SETTINGS:
            raise unknown_name(f"setting in {file}", name, SETTINGS)
    return settings
