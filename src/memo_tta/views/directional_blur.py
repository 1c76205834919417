"""Undo a blur that is wider along one direction, as motion makes it."""

import math

import torch
from torch import Tensor

from memo_tta.views.deconvolution import deconvolve

# A blur of variance v raises the energy of first differences along it, relative to that of second ones, to
# about DETAIL_RATIO + v / VARIANCE_SCALE. Fitted and chosen by python -m studies.measure_limits.
VARIANCE_SCALE = 0.8
DETAIL_RATIO = 0.9
DIAGONAL_SCALE = 1.2  # of the covariance, which is the difference of both diagonals
MIN_VARIANCE = 0.16  # square pixels; less is what differs between clean photographs
MAX_VARIANCE = 9.0


def deblur_by_direction(x: Tensor) -> Tensor:
    """Undo a Gaussian blur of the measured covariance by Wiener deconvolution."""
    covariance = blur_covariance(x)
    widest = float(torch.linalg.eigvalsh(covariance)[-1])
    if widest < MIN_VARIANCE:
        return x
    (yy, xy), (_, xx) = covariance.tolist()

    def transfer(rows: Tensor, columns: Tensor) -> Tensor:
        return torch.exp(-2 * math.pi**2 * (yy * rows**2 + 2 * xy * rows * columns + xx * columns**2))

    return deconvolve(x, transfer, math.ceil(4 * math.sqrt(widest)))


def blur_covariance(x: Tensor) -> Tensor:
    """Return the covariance (2, 2) of the Gaussian blur that x shows; rows come before columns."""
    if min(x.shape[1:]) < 3:
        return torch.zeros(2, 2)
    down, right, falling, rising = detail_ratios(x)
    covariance = DIAGONAL_SCALE * (falling - rising)
    measured = torch.tensor([[down - DETAIL_RATIO, covariance], [covariance, right - DETAIL_RATIO]])
    variances, directions = torch.linalg.eigh(VARIANCE_SCALE * measured)
    return directions @ torch.diag(variances.clamp(0, MAX_VARIANCE)) @ directions.T


def detail_ratios(x: Tensor) -> list[float]:
    """Return the energy of first differences in that of second ones: down, right and along both diagonals."""
    first = [x.diff(dim=1), x.diff(dim=2), x[:, 1:, 1:] - x[:, :-1, :-1], x[:, 1:, :-1] - x[:, :-1, 1:]]
    second = [
        first[0].diff(dim=1),
        first[1].diff(dim=2),
        first[2][:, 1:, 1:] - first[2][:, :-1, :-1],
        first[3][:, 1:, :-1] - first[3][:, :-1, 1:],
    ]
    energies = [[float(d.square().mean()) for d in each] for each in (first, second)]
    return [one / max(two, 1e-9) for one, two in zip(*energies, strict=True)]
