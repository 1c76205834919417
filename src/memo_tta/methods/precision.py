"""Numerical precision of the forward passes."""

from collections.abc import Generator
from contextlib import contextmanager

import torch

from memo_tta.interrupts import undoing

PRECISIONS = {"float32": False, "bf16": True}  # whether matrix products run in bfloat16


@contextmanager
def in_precision(precision: str, device: str) -> Generator[None]:
    """Compute matrix products in this precision inside the block; the weights keep their own."""
    was_on, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def restore() -> None:
        torch.set_autocast_enabled(device, was_on)
        torch.set_autocast_dtype(device, dtype)

    with undoing(restore, is_thread_local=True):
        torch.set_autocast_dtype(device, torch.bfloat16)
        torch.set_autocast_enabled(device, PRECISIONS[precision])
        yield
