"""The cosine transform of patches."""

import math
from functools import cache

import torch
from torch import Tensor


@cache
def dct_basis(side: int) -> Tensor:
    """Return the orthonormal cosine transform of a patch, (side * side, side * side)."""
    index = torch.arange(side, dtype=torch.float64)
    rows = torch.cos(math.pi / side * index[:, None] * (index + 0.5)) * math.sqrt(2 / side)
    rows[0] /= math.sqrt(2)
    return torch.kron(rows, rows)
