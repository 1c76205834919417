"""Wiener deconvolution of images without visible borders."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

NOISE_TO_SIGNAL = 0.005

Transfer = Callable[[Tensor, Tensor], Tensor]  # from the frequencies of rows and columns to those of a blur


def deconvolve(x: Tensor, transfer_of: Transfer, margin: int) -> Tensor:
    """Undo a blur, given by its transfer function, on an image continued by reflection on every side."""
    height, width = x.shape[1:]
    padded = reflect_pad(x, margin)
    rows = torch.fft.fftfreq(padded.shape[1], device=x.device)[:, None]
    columns = torch.fft.rfftfreq(padded.shape[2], device=x.device)[None]
    transfer = transfer_of(rows, columns)
    spectrum = torch.fft.rfft2(padded) * transfer / (transfer**2 + NOISE_TO_SIGNAL)
    sharp = torch.fft.irfft2(spectrum, s=padded.shape[1:]) * (1 + NOISE_TO_SIGNAL)
    return sharp[:, margin : margin + height, margin : margin + width]


def reflect_pad(x: Tensor, margin: int) -> Tensor:
    """Pad every side by reflection, repeatedly if the margin is wider than the image."""
    while margin > 0:
        step = min(margin, *(side - 1 for side in x.shape[1:]))
        if step == 0:
            return F.pad(x[None], (margin,) * 4, mode="replicate")[0]
        x, margin = F.pad(x[None], (step,) * 4, mode="reflect")[0], margin - step
    return x
