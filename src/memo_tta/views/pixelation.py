"""Undo pixelation: cells of equal pixels become the smoothest lines with the same means."""

from functools import lru_cache

import torch
from torch import Tensor

EQUAL = 0.5 / 255  # lines that differ less are equal in 8 bits
# Share of lines equal to the one before: 99 % of clean photographs have less, cells of 1.15 pixels have more.
# An image with more than the maximum shows nothing.
MIN_EQUAL, MAX_EQUAL = 0.05, 0.8
ROUGHNESS = 0.01  # weight of squared second differences next to squared errors of the means


def depixelate(x: Tensor) -> Tensor:
    """Replace rows and columns that repeat the one before by smooth ones."""
    rows, columns = (_smoothing(_equal_lines(x, dim)) for dim in (1, 2))
    if rows is not None:
        x = rows.to(x) @ x
    if columns is not None:
        x = x @ columns.to(x).T
    return x


def _equal_lines(x: Tensor, dim: int) -> tuple[bool, ...]:
    """Return for each line but the first whether it equals the one before."""
    return tuple((x.diff(dim=dim).abs().amax(dim=(0, 3 - dim)) < EQUAL).tolist())


@lru_cache(maxsize=64)
def _smoothing(is_equal: tuple[bool, ...]) -> Tensor | None:
    """Return the matrix that makes a line smooth while its cells keep their means, or None without cells."""
    if not MIN_EQUAL <= sum(is_equal) / max(1, len(is_equal)) <= MAX_EQUAL:
        return None
    cell = torch.tensor([False, *is_equal]).logical_not().cumsum(0) - 1
    means = torch.nn.functional.one_hot(cell).T.double()
    means /= means.sum(dim=1, keepdim=True)
    bend = torch.eye(len(cell), dtype=torch.float64).diff(n=2, dim=0)
    return torch.linalg.solve(means.T @ means + ROUGHNESS * bend.T @ bend, means.T @ means)
