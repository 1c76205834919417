"""Smooth pixels that were displaced at random, as by rippled glass."""

import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.views.directional_blur import detail_ratios

# Energy of first differences in that of second ones, below which edges are torn; clean photographs have more,
# and noise, which has less, was removed before (python -m studies.measure_limits).
MAX_RATIO = 0.54
SIDE = 0.107  # weight of a pixel's neighbour in a line: a Gaussian of standard deviation 0.5


def undisplace(x: Tensor) -> Tensor:
    """Return the mean of a slight Gaussian blur and of the median of each pixel and its four neighbours."""
    if min(x.shape[1:]) < 3 or sum(detail_ratios(x)[:2]) / 2 >= MAX_RATIO or x.std() < 1e-3:
        return x
    padded = F.pad(x[None], (1, 1, 1, 1), mode="replicate")[0]
    rows = SIDE * (padded[:, :-2] + padded[:, 2:]) + (1 - 2 * SIDE) * padded[:, 1:-1]
    blurred = SIDE * (rows[..., :-2] + rows[..., 2:]) + (1 - 2 * SIDE) * rows[..., 1:-1]
    middle = padded[:, 1:-1, 1:-1]
    around = [padded[:, :-2, 1:-1], padded[:, 2:, 1:-1], padded[:, 1:-1, :-2], padded[:, 1:-1, 2:]]
    return (blurred + torch.stack([middle, *around]).median(dim=0).values) / 2
