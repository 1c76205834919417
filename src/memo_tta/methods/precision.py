"""The precision that a model computes in."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from memo_tta.interrupts import undoing

PRECISIONS = {"float32": False, "bf16": True}  # whether products of matrices are reduced


@contextmanager
def computing(precision: str, device: str) -> Iterator[None]:
    """Compute products of matrices in this precision; weights and sums stay as they are."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    caching = torch.is_autocast_cache_enabled()

    def restore() -> None:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
        torch.set_autocast_cache_enabled(caching)

    with undoing(restore):
        # A weight that was cast before a step must be cast again after it.
        torch.set_autocast_cache_enabled(False)
        torch.set_autocast_dtype(device, torch.bfloat16)
        torch.set_autocast_enabled(device, PRECISIONS[precision])
        yield
