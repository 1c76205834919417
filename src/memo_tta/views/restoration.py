"""Restorations: estimates of the image before noise, blur or haze.

Each restoration takes an image, float32 (channels, height, width) in 0..1, measures its degradation, and
removes what exceeds that of clean photographs; an image without it is returned unchanged. Widths are measured
in pixels, so they fit images of any size. Results may lie outside 0..1. A new restoration is a function and a
row of the table.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.registry import Registry
from memo_tta.views.crop_flip import is_large
from memo_tta.views.dct import dct_basis
from memo_tta.views.deblocking import deblock
from memo_tta.views.deconvolution import deconvolve, reflect_pad
from memo_tta.views.directional_blur import deblur_by_direction
from memo_tta.views.displaced_pixels import undisplace
from memo_tta.views.haze import stretch_colours
from memo_tta.views.pixelation import depixelate

Restoration = Callable[[Tensor], Tensor]

# Bounds that clean photographs keep, of 32 as of 224 pixels.
MAX_SPECK = 0.3  # mean difference between a pixel and the four neighbours most like it
MAX_NOISE = 0.02  # standard deviation of the noise that fine texture is mistaken for
MIN_DETAIL = 1.0  # energy of second differences relative to first ones, which blur lowers
MIN_CONTRAST = 0.7  # difference between the darkest and the brightest pixels
CLIPPED = 0.01  # fraction of the pixels at either end that contrast ignores

PATCH = 8  # pixels per side of the patches in which denoising separates noise from structure
THRESHOLD = 3.5  # coefficients below this many standard deviations of the noise are set to zero
MAX_BLUR = 3.0  # standard deviation in pixels of the widest blur that can be undone
MIN_BLUR = 0.2
# Luminance and two colour differences, orthogonal: structure is in the first, noise in all three. Channels
# that are not colours are taken one by one.
COLOUR_BASIS = ((1, 1, 1), (1, 0, -1), (1, -2, 1))


def despeckle(x: Tensor) -> Tensor:
    """Replace pixels that differ from all neighbours by the neighbours' median (Garnett et al., 2005)."""
    height, width = x.shape[1:]
    padded = F.pad(x[None], (1, 1, 1, 1), mode="replicate")[0]
    neighbours = [
        padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3) if (i, j) != (1, 1)
    ]
    # A speck differs that much from at least five neighbours, so from one beside, above or below it.
    candidate = torch.zeros_like(x, dtype=torch.bool)
    for index in (1, 3, 4, 6):
        candidate |= (neighbours[index] - x).abs_() > MAX_SPECK - 1e-6
    values = torch.stack([neighbour[candidate] for neighbour in neighbours], dim=-1)
    nearest = (values - x[candidate][:, None]).abs_().topk(4, largest=False, sorted=False).values
    is_speck = nearest.mean(dim=-1) > MAX_SPECK
    specks = candidate.masked_scatter(candidate, is_speck)
    return x.masked_scatter(specks, values[is_speck].median(dim=-1).values)


def denoise(x: Tensor) -> Tensor:
    """Zero the weak DCT coefficients of overlapping patches, and average the patches (Yu & Sapiro, 2011)."""
    variance = noise_variance(x) - MAX_NOISE**2
    if variance <= 0:
        return x
    basis = torch.tensor(COLOUR_BASIS) if len(x) == len(COLOUR_BASIS) else torch.eye(len(x))
    colours = F.normalize(basis.to(x))
    threshold = THRESHOLD * math.sqrt(variance)
    clean = [_denoise_colour(colour, threshold) for colour in torch.einsum("ij,jhw->ihw", colours, x)]
    return torch.einsum("ji,jhw->ihw", colours, torch.stack(clean))


def _denoise_colour(x: Tensor, threshold: float) -> Tensor:
    """Denoise one colour, (height, width): the patches of all three together would not fit the cache."""
    height, width = x.shape
    margin = PATCH - 1
    padded = reflect_pad(x[None], margin)
    basis = dct_basis(PATCH).to(x.dtype).to(x.device)
    step = min(PATCH // 2, 1 + max(height, width) // 100)  # large images need only some of the patches
    coefficients = basis @ F.unfold(padded, PATCH, stride=step)  # (frequencies, patches)
    is_kept = coefficients.abs() > threshold
    is_kept[0] = True  # a patch's mean is no noise
    weight = 1 / is_kept.sum(dim=0, keepdim=True)  # fewer coefficients hold less noise
    size = padded.shape[1:]
    total = F.fold((basis.T @ coefficients.mul_(is_kept)).mul_(weight), size, PATCH, stride=step)[0]
    weights = F.fold(weight.expand(PATCH**2, -1), size, PATCH, stride=step)[0]
    return (total / weights)[margin : margin + height, margin : margin + width]


def noise_variance(x: Tensor) -> float:
    """Estimate the variance of white noise from the median of second differences, robust to edges."""
    kernel = torch.tensor([1.0, -2.0, 1.0], dtype=x.dtype, device=x.device)
    padded = F.pad(x[:, None], (1, 1, 1, 1), mode="replicate")
    response = F.conv2d(padded, torch.outer(kernel, kernel)[None, None])
    return float(response.abs().median() / (6 * 0.6745)) ** 2


def deblur(x: Tensor) -> Tensor:
    """Undo a Gaussian blur of the measured width by Wiener deconvolution."""
    sigma = blur_width(x)
    if sigma < MIN_BLUR:
        return x

    def transfer(rows: Tensor, columns: Tensor) -> Tensor:
        return torch.exp(-2 * (math.pi * sigma) ** 2 * (rows**2 + columns**2))

    return deconvolve(x, transfer, math.ceil(4 * sigma))


def blur_width(x: Tensor) -> float:
    """Return the standard deviation in pixels of the Gaussian that makes a sharp photograph as smooth as x.

    The power spectra of photographs fall with the square of the frequency. A Gaussian of standard deviation s
    then makes the energy of second differences about 2.3 / (1 + 2.6 s²) of that of first differences, so two
    variances differ by 0.9 times the difference of the reciprocals.
    """
    if min(x.shape[1:]) < 3:
        return 0.0
    first = [x.diff(dim=dim) for dim in (1, 2)]
    second = [d.diff(dim=dim) for dim, d in zip((1, 2), first, strict=True)]
    energies = [float(sum(d.square().mean() for d in each)) for each in (first, second)]
    if energies[0] < 1e-6:
        return 0.0
    variance = 0.9 * (energies[0] / max(energies[1], 1e-9) - 1 / MIN_DETAIL)
    return min(MAX_BLUR, math.sqrt(max(0.0, variance)))


def stretch(x: Tensor) -> Tensor:
    """Raise low contrast to that of photographs, within 0..1, with the same factor in all colours."""
    values = x.flatten()
    cut = int(CLIPPED * len(values))
    low, high = (float(values.kthvalue(rank).values) for rank in (cut + 1, len(values) - cut))
    if not 1e-3 < high - low < MIN_CONTRAST:
        return x
    centre = (low + high) / 2
    new_centre = min(max(centre, MIN_CONTRAST / 2), 1 - MIN_CONTRAST / 2)
    return (x - centre) * (MIN_CONTRAST / (high - low)) + new_centre


# What is measured on few pixels, or changes the pixels of a clean photograph, is left out for large images.
LARGE_IMAGES: tuple[Restoration, ...] = (despeckle, denoise, deblur, stretch)
SMALL_IMAGES: tuple[Restoration, ...] = (
    *(depixelate, deblock),  # first: filters would hide the grids
    *(despeckle, denoise, undisplace),
    *(deblur_by_direction, stretch_colours, stretch),
)


def restore(x: Tensor) -> Tensor:
    """Apply the restorations for images of this size, one after the other."""
    height, width = x.shape[1:]
    return restore_with(LARGE_IMAGES if is_large((height, width)) else SMALL_IMAGES, x)


def restore_with(restorations: Sequence[Restoration], x: Tensor) -> Tensor:
    """Apply these restorations, one after the other."""
    for restoration in restorations:
        x = restoration(x).clamp(0, 1)
    return x


RESTORATIONS: Registry[Restoration] = Registry(
    "restoration",
    {
        "plain": lambda x: x,
        "depixelated": depixelate,
        "deblocked": deblock,
        "despeckled": despeckle,
        "denoised": denoise,
        "undisplaced": undisplace,
        "deblurred": deblur,
        "deblurred by direction": deblur_by_direction,
        "stretched by colour": stretch_colours,
        "stretched": stretch,
        "restored": restore,
        "restored as a large image": partial(restore_with, LARGE_IMAGES),
    },
)
