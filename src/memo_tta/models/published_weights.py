"""Weights that other libraries download: whether they are here already, or can be reached at all.

The libraries themselves try for a minute before they raise, each an exception of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

import torch

from memo_tta.errors import CheckpointError

REACHED_WITHIN = 3.0  # seconds
MAX_REASON = 200  # characters of a library's message


@contextmanager
def downloading(spec: str, url: str | None, hub_name: str | None = None) -> Iterator[None]:
    """Let the block download a model's weights from the hub or from a URL; all that fails is one error."""
    if hub_name and not _is_in_hub_cache(hub_name):
        _check_reached(spec, f"{import_module('huggingface_hub').constants.ENDPOINT}/{hub_name}")
    elif url and not hub_name and not _is_in_torch_cache(url):
        _check_reached(spec, url)
    elif not url and not hub_name:
        raise CheckpointError(f"{spec}: has no published weights: {_instead()}")
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise _unavailable(spec, error) from None


def _is_in_hub_cache(name: str) -> bool:
    hub = import_module("huggingface_hub")
    try:
        return any(Path(hub.snapshot_download(name, local_files_only=True)).iterdir())
    except hub.errors.LocalEntryNotFoundError:
        return False


def _is_in_torch_cache(url: str) -> bool:
    return (Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(url).path).name).is_file()


def _check_reached(spec: str, url: str) -> None:
    """Raise an error unless a server answers."""
    try:
        with urlopen(Request(url, method="HEAD"), timeout=REACHED_WITHIN):  # an address of the library's own
            pass
    except HTTPError:
        return  # it answered; the library knows more addresses
    except OSError as error:
        raise _unavailable(spec, error) from None


def _unavailable(spec: str, error: Exception) -> CheckpointError:
    reason: Any = getattr(error, "reason", error)
    line = (str(reason).splitlines() or [type(error).__name__])[0][:MAX_REASON]
    return CheckpointError(
        f"{spec}: its weights are not here and cannot be downloaded ({line}): {_instead()}"
    )


def _instead() -> str:
    return "give a file with --weights PATH, or weights=PATH in Python"
