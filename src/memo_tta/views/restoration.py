"""Restorations: guesses at the image as it was before noise, blur or haze.

Each takes the image, float32 (3, height, width) in 0..1, measures on it what it is there to undo, and undoes
what goes beyond that of clean photographs: an image that shows nothing of the kind comes back as it is. All
widths are in pixels and measured, so they fit images of any size. A result may leave 0..1. A new restoration
is a function and a row of the table.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.registry import Registry

Restoration = Callable[[Tensor], Tensor]

# What clean photographs show, of 32 pixels as of 224.
SPECK = 0.3  # at most: how far a pixel is from the four neighbours most like it
NOISE = 0.02  # at most: deviation of the noise that fine texture looks like
DETAIL = 1.0  # at least: energy of second differences in that of first ones, which blur lowers
CONTRAST = 0.7  # at least: between the darkest and the brightest pixels
CLIPPED = 0.01  # of the pixels at either end, which contrast leaves out

SQUARE = 8  # pixels, of squares that noise is told from structure in
THRESHOLD = 3.5  # deviations of noise, below which a frequency of a square is noise
NOISE_TO_SIGNAL = 0.005  # what deconvolution assumes
WIDEST = 3.0  # pixels, of a blur that can be undone
NARROWEST = 0.2
# Brightness and two differences of colour, orthonormal: structure is in the first, noise in all.
COLOURS = ((1, 1, 1), (1, 0, -1), (1, -2, 1))


def despeckle(x: Tensor) -> Tensor:
    """Pixels unlike all that surrounds them become the median of their neighbours (Garnett et al., 2005)."""
    height, width = x.shape[1:]
    padded = F.pad(x[None], (1, 1, 1, 1), mode="replicate")[0]
    around = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]
    neighbours = torch.stack([padded[:, i : i + height, j : j + width] for i, j in around], dim=-1)
    likest = (neighbours - x[..., None]).abs_().topk(4, largest=False, sorted=False).values
    is_speck = likest.mean(dim=-1) > SPECK
    return x.masked_scatter(is_speck, neighbours[is_speck].median(dim=-1).values)


def denoise(x: Tensor) -> Tensor:
    """Weak frequencies of all squares of pixels set to zero, and the squares averaged (Yu & Sapiro, 2011)."""
    variance = noise_variance(x) - NOISE**2
    if variance <= 0:
        return x
    height, width = x.shape[1:]
    colours = F.normalize(torch.tensor(COLOURS, dtype=x.dtype, device=x.device))
    rim = SQUARE - 1
    padded = _mirrored(torch.einsum("ij,jhw->ihw", colours, x), rim)
    basis = _frequencies(SQUARE).to(x.dtype).to(x.device)
    step = min(SQUARE // 2, 1 + max(height, width) // 100)  # of large images, a part of the squares will do
    found = basis @ F.unfold(padded[:, None], SQUARE, stride=step)  # (3, frequencies, squares)
    kept = found.abs() > THRESHOLD * math.sqrt(variance)
    kept[:, 0] = True  # a square's average is no noise
    weight = 1 / kept.sum(dim=1, keepdim=True)  # the fewer are needed, the less noise is left
    size = padded.shape[1:]
    total = F.fold((basis.T @ (found * kept)) * weight, size, SQUARE, stride=step)[:, 0]
    weights = F.fold(weight.expand(-1, SQUARE**2, -1), size, SQUARE, stride=step)[:, 0]
    clean = (total / weights)[:, rim : rim + height, rim : rim + width]
    return torch.einsum("ji,jhw->ihw", colours, clean)


def noise_variance(x: Tensor) -> float:
    """Of white noise, from the median of second differences in both directions, which edges barely move."""
    kernel = torch.tensor([1.0, -2.0, 1.0], dtype=x.dtype, device=x.device)
    padded = F.pad(x[:, None], (1, 1, 1, 1), mode="replicate")
    response = F.conv2d(padded, torch.outer(kernel, kernel)[None, None])
    return float(response.abs().median() / (6 * 0.6745)) ** 2


@cache
def _frequencies(side: int) -> Tensor:
    """The orthonormal cosine transform of a square, (side * side, side * side)."""
    at = torch.arange(side, dtype=torch.float64)
    rows = torch.cos(math.pi / side * at[:, None] * (at + 0.5)) * math.sqrt(2 / side)
    rows[0] /= math.sqrt(2)
    return torch.kron(rows, rows)


def _mirrored(x: Tensor, rim: int) -> Tensor:
    """With a mirrored rim on every side, wider than the image if need be."""
    while rim > 0:
        step = min(rim, *(side - 1 for side in x.shape[1:]))
        if step == 0:
            return F.pad(x[None], (rim,) * 4, mode="replicate")[0]
        x, rim = F.pad(x[None], (step,) * 4, mode="reflect")[0], rim - step
    return x


def deblur(x: Tensor) -> Tensor:
    """A Gaussian blur of the width that the image shows, undone as far as noise allows (Wiener)."""
    sigma = blur_width(x)
    if sigma < NARROWEST:
        return x
    height, width = x.shape[1:]
    rim = math.ceil(4 * sigma)
    padded = _mirrored(x, rim)
    rows = torch.fft.fftfreq(padded.shape[1], device=x.device)[:, None]
    columns = torch.fft.rfftfreq(padded.shape[2], device=x.device)[None]
    passed = torch.exp(-2 * (math.pi * sigma) ** 2 * (rows**2 + columns**2))
    undone = torch.fft.rfft2(padded) * passed / (passed**2 + NOISE_TO_SIGNAL)
    sharp = torch.fft.irfft2(undone, s=padded.shape[1:]) * (1 + NOISE_TO_SIGNAL)
    return sharp[:, rim : rim + height, rim : rim + width]


def blur_width(x: Tensor) -> float:
    """Deviation in pixels of the Gaussian that would make a sharp photograph as smooth as this.

    Spectra of photographs fall with the square of frequency. A Gaussian of deviation s then makes the energy
    of second differences 2.3 / (1 + 2.6 s²) of that of first ones, nearly: so variances differ by 0.9 times
    what the reciprocals do.
    """
    if min(x.shape[1:]) < 3:
        return 0.0
    first = [x.diff(dim=dim) for dim in (1, 2)]
    second = [d.diff(dim=dim) for dim, d in zip((1, 2), first, strict=True)]
    energies = [float(sum(d.square().mean() for d in each)) for each in (first, second)]
    if energies[0] < 1e-6:
        return 0.0
    variance = 0.9 * (energies[0] / max(energies[1], 1e-9) - 1 / DETAIL)
    return min(WIDEST, math.sqrt(max(0.0, variance)))


def stretch(x: Tensor) -> Tensor:
    """Low contrast raised to that of photographs, within 0..1, alike in all colours."""
    ordered = x.flatten().sort().values
    cut = int(CLIPPED * len(ordered))
    low, high = float(ordered[cut]), float(ordered[-1 - cut])
    if not 1e-3 < high - low < CONTRAST:
        return x
    centre = (low + high) / 2
    target = min(max(centre, CONTRAST / 2), 1 - CONTRAST / 2)
    return (x - centre) * (CONTRAST / (high - low)) + target


def restore(x: Tensor) -> Tensor:
    """All of it, one after the other."""
    for restoration in (despeckle, denoise, deblur, stretch):
        x = restoration(x).clamp(0, 1)
    return x


RESTORATIONS: Registry[Restoration] = Registry(
    "restoration",
    {
        "plain": lambda x: x,
        "despeckled": despeckle,
        "denoised": denoise,
        "deblurred": deblur,
        "stretched": stretch,
        "restored": restore,
    },
)
