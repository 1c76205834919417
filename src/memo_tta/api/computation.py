"""The workers and the progress of a call from Python, which leaves torch's threads as they were."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console

from memo_tta.errors import ConfigError
from memo_tta.models.classifier import Classifier
from memo_tta.progress import ProgressUpdate, progress
from memo_tta.workers import Engine, Processes


def check_workers(workers: int, classifier: Classifier | str) -> None:
    """Raise if a classifier that is loaded already should be used by several processes."""
    if workers > 1 and not isinstance(classifier, str):
        raise ConfigError(
            f"workers: expected 1 for a classifier that is loaded already, got {workers}: other processes "
            "cannot have it; give the model's name instead"
        )


@contextmanager
def computation(
    units: str, workers: int, quiet: bool
) -> Generator[tuple[Engine[Any, Any], ProgressUpdate, Callable[[str], None]]]:
    """Yield the engine, and functions that show the progress and a line of text."""
    with _shown_progress(units, quiet) as (update, tell), Processes(workers) as engine, _same_threads():
        yield engine, update, tell


@contextmanager
def _shown_progress(units: str, quiet: bool) -> Generator[tuple[ProgressUpdate, Callable[[str], None]]]:
    if quiet:
        yield lambda done, total, note="": None, lambda line: None
        return
    console = Console(stderr=True)
    with progress(units) as update:
        yield update, lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _same_threads() -> Generator[None]:
    """Give torch its number of threads back, which the engine sets to that of free cores."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
