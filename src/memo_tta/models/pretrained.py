"""Load the parts of a model of the transformers library from a folder, or from the hub."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from memo_tta.errors import CheckpointError, MemoError, MissingExtra, ModelError
from memo_tta.models.state_dict import first_few
from memo_tta.models.tensor_values import unusable_parameter

Loaded = TypeVar("Loaded")

ANSWERS_WITHIN = 1.2  # seconds of the hub; its client may spend 3 more before it asks
TEXT_FILES = (".json", ".txt", ".model")
WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")  # by preference
MAX_REASON = 200  # characters of a library's message
CONFIG = "config.json"
FILES = f"{CONFIG}, preprocessor_config.json and model.safetensors"


@cache
def import_transformers() -> Any:
    """Import transformers, or raise an error that says how to install it."""
    with _without_unusable_torchvision():
        try:
            transformers = import_module("transformers")
        except ImportError:
            raise MissingExtra("transformers is not installed: pip install 'memo-tta[hf]'") from None
        try:
            transformers.utils.is_torchvision_available()  # it remembers the answer
            _ = transformers.AutoImageProcessor, transformers.PreTrainedModel
        except (ImportError, RuntimeError) as error:
            raise MissingExtra(
                f"transformers cannot be used ({_reason(error)}): install versions of torch and torchvision "
                "that belong together, or uninstall torchvision"
            ) from None
    return transformers


@contextmanager
def _without_unusable_torchvision() -> Iterator[None]:
    """Hide torchvision from transformers, which can do without, where it does not fit the installed torch."""
    try:
        import_module("torchvision")
    except ImportError:
        yield
    except RuntimeError:
        sys.modules["torchvision"] = None  # type: ignore[assignment]  # how imports are blocked
        try:
            yield
        finally:
            del sys.modules["torchvision"]
    else:
        yield


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence the messages and progress bars of transformers; what they tell is checked here."""
    logging = transformers.utils.logging
    verbosity, shows_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_progress:
            logging.enable_progress_bar()


class IncompleteFolder(CheckpointError):
    """A folder that lacks a file, which may be because its download was cut short."""


def load_from(name: str, spec: str, load: Callable[[str], Loaded]) -> Loaded:
    """Return `load(folder)` of a folder with the model's files; download them if they are not here."""
    transformers = import_transformers()
    if Path(name).is_dir():
        return _loaded(transformers, Path(name), spec, load)
    cached = _cached_folder(name)
    if cached is not None:
        with suppress(IncompleteFolder):
            return _loaded(transformers, cached, spec, load)
    return _loaded(transformers, _downloaded_folder(name, spec), spec, load)


def _loaded(transformers: Any, folder: Path, spec: str, load: Callable[[str], Loaded]) -> Loaded:
    if not (folder / CONFIG).is_file():
        raise IncompleteFolder(f"{spec}: has no {CONFIG}: expected a folder with {FILES}")
    try:
        with _quiet(transformers):
            return load(str(folder))
    except (MemoError, MemoryError):
        raise
    except OSError as error:
        raise IncompleteFolder(f"{spec}: {_reason(error)}: expected a folder with {FILES}") from None
    except Exception as error:  # transformers does not say which exceptions foreign files can raise
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"{spec}: comes with code of its own, which is not run: "
                "build it in a file of yours, and give path/to/file.py:build"
            ) from None
        raise CheckpointError(f"{spec}: cannot be loaded ({_reason(error)})") from None


def _cached_folder(name: str) -> Path | None:
    """Return the folder into which the model was downloaded before, or None."""
    hub = import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, local_files_only=True))
    except (hub.errors.LocalEntryNotFoundError, hub.errors.HFValidationError):
        return None


def _downloaded_folder(name: str, spec: str) -> Path:
    """Download configuration and weights; ask first, because the client would retry for 20 seconds."""
    hub = import_module("huggingface_hub")
    try:
        files = hub.HfApi().model_info(name, timeout=ANSWERS_WITHIN).siblings or []
        names = [Path(file.rfilename) for file in files]
        return Path(hub.snapshot_download(name, allow_patterns=_wanted(names)))
    except MemoryError:
        raise
    except Exception as error:  # of the hub's client, of what it uses to connect, of the disk
        raise CheckpointError(
            f"{spec}: no such folder, not downloaded before, and {_why_unreachable(hub, error)}: "
            f"give a folder with {FILES}"
        ) from None


def _wanted(names: list[Path]) -> list[str]:
    """Return the configuration files, and the weights in the format that is preferred."""
    top = [name for name in names if name.parent == Path()]
    weights = ([str(name) for name in top if name.match(pattern)] for pattern in WEIGHTS)
    return [str(name) for name in top if name.suffix in TEXT_FILES] + next(filter(None, weights), [])


def _why_unreachable(hub: Any, error: Exception) -> str:
    if isinstance(error, hub.errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE forbids downloading"
    if isinstance(error, hub.errors.RepositoryNotFoundError | hub.errors.HFValidationError):
        return "the hub has no public model of that name"
    return f"the hub cannot be reached ({_reason(error)})"


def pretrained_module(kind: Any, folder: str | None, spec: str, **options: Any) -> nn.Module:
    """Return a module in float32 and eval mode, without running code that comes with it.

    `kind` is a class of transformers; without a folder, it needs `config` and `state_dict`. Raise if a weight
    is missing, has another shape, or is not finite.
    """
    module, found = kind.from_pretrained(
        folder,
        dtype=torch.float32,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **options,
    )
    _check_complete(type(module).__name__, found, spec)
    if problem := unusable_parameter(module):
        raise CheckpointError(f"{spec}: {problem}: its predictions would mean nothing, use other weights")
    return module.eval()


def _check_complete(name: str, found: dict[str, Any], spec: str) -> None:
    if wrong := sorted(found["mismatched_keys"]):
        key, got, expected = wrong[0]
        raise CheckpointError(
            f"{spec}: {key}: expected shape {tuple(expected)} for {name}, got {tuple(got)}: "
            "is the number of classes another? give num_classes"
        )
    if missing := sorted(found["missing_keys"]):
        raise CheckpointError(
            f"{spec}: has no weights of {first_few(missing)}, which {name} needs: "
            "it was trained for another task; use a model that was trained for this one"
        )


def _reason(error: BaseException) -> str:
    """Return the first sentence of a library's message."""
    lines = str(error).splitlines()
    return lines[0].split(". ")[0][:MAX_REASON] if lines else type(error).__name__
