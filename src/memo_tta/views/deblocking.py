"""Smooth blocks of quantised cosine coefficients, as image codecs leave them, and keep edges."""

import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.views.dct import dct_basis

BLOCK = 8  # pixels per side, in JPEG and most codecs after it
FINE = 5  # sum of the two frequencies from which a coefficient is fine detail
ZERO = 1.5 / 255  # coefficients below this are zero but for the rounding of pixels
MIN_ZEROS = 0.3  # excess on the grid: 98 % of clean photographs have less than 0.18, faint blocks 0.4
REACH, DISTANCE, DIFFERENCE = 2, 1.0, 0.08  # of the bilateral filter: pixels, pixels, sum over the colours


def deblock(x: Tensor) -> Tensor:
    """Apply a bilateral filter if the 8 x 8 grid shows."""
    return smooth_within_edges(x) if extra_zeros(x) > MIN_ZEROS else x


def extra_zeros(x: Tensor) -> float:
    """Return how many more fine coefficients are zero in blocks on the grid than between, as a share."""
    if min(x.shape[1:]) < BLOCK + BLOCK // 2:
        return 0.0
    grey = x.mean(dim=0)[None, None]
    basis = dct_basis(BLOCK).to(x)
    frequency = torch.arange(BLOCK)
    is_fine = (frequency[:, None] + frequency).flatten() >= FINE
    shares = [
        float(
            ((basis @ F.unfold(grey[..., start:, start:], BLOCK, stride=BLOCK)[0])[is_fine].abs() < ZERO)
            .float()
            .mean()
        )
        for start in (0, BLOCK // 2)
    ]
    return shares[0] - shares[1]


def smooth_within_edges(x: Tensor) -> Tensor:
    """Apply the bilateral filter (Tomasi & Manduchi, 1998): pixels far away or different count less."""
    height, width = x.shape[1:]
    padded = F.pad(x[None], (REACH,) * 4, mode="replicate")[0]
    total, weights = torch.zeros_like(x), torch.zeros_like(x[:1])
    for down in range(-REACH, REACH + 1):
        for right in range(-REACH, REACH + 1):
            other = padded[:, REACH + down :, REACH + right :][:, :height, :width]
            difference = (other - x).abs().sum(dim=0, keepdim=True)
            exponent = (down**2 + right**2) / DISTANCE**2 + (difference / DIFFERENCE) ** 2
            weight = torch.exp(-exponent / 2)
            total += weight * other
            weights += weight
    return total / weights
