"""The precision that a model computes in."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from memo_tta.interrupts import undoing

PRECISIONS = {"float32": False, "bf16": True}  # whether products of matrices are reduced


@contextmanager
def in_precision(precision: str, device: str) -> Iterator[None]:
    """Compute products of matrices in this precision; weights and sums stay as they are."""
    was_on, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def restore() -> None:
        torch.set_autocast_enabled(device, was_on)
        torch.set_autocast_dtype(device, dtype)

    with undoing(restore, of_thread=True):
        torch.set_autocast_dtype(device, torch.bfloat16)
        torch.set_autocast_enabled(device, PRECISIONS[precision])
        yield
