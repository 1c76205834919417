"""Restorations: guesses at the image as it was before noise, blur or weather.

Each takes the image, float32 (3, height, width) in 0..1, and a scale that filter widths grow with, and
gives an image of the same shape; it may leave 0..1. A new one is a function and a row of the table.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.registry import Registry

Restoration = Callable[[Tensor, float], Tensor]

CLIPPED = 0.01  # of the pixels at either end, when contrast is stretched
NOISE_TO_SIGNAL = 0.02  # what deconvolution assumes
NEAR = 3  # pixels to either side that non-local means compares with
STRENGTH = 2.0  # of non-local means: how much more than noise surroundings may differ, in its variance


def plain(x: Tensor, scale: float) -> Tensor:
    return x


def blur(x: Tensor, sigma: float) -> Tensor:
    """A Gaussian of that width, with mirrored borders."""
    radius = min(math.ceil(3 * sigma), *(side - 1 for side in x.shape[1:]))
    at = torch.arange(-radius, radius + 1, dtype=x.dtype, device=x.device)
    kernel = torch.exp(-0.5 * (at / sigma) ** 2)
    kernel = (kernel / kernel.sum()).view(1, 1, -1)
    padded = F.pad(x[:, None], (radius,) * 4, mode="reflect")
    return F.conv2d(F.conv2d(padded, kernel[..., None]), kernel[:, :, None])[:, 0]


def median(x: Tensor, scale: float) -> Tensor:
    """The median of 3 x 3 pixels, again and again for larger images."""
    for _ in range(max(1, round(scale))):
        x = _median_of_nine(x)
    return x


def _median_of_nine(x: Tensor) -> Tensor:
    height, width = x.shape[1:]
    padded = F.pad(x[None], (1, 1, 1, 1), mode="replicate")[0]
    columns = []
    for left in range(3):
        above, at, below = (padded[:, top : top + height, left : left + width] for top in range(3))
        low, high = torch.minimum(above, at), torch.maximum(above, at)
        columns.append(
            (
                torch.minimum(low, below),
                torch.maximum(low, torch.minimum(high, below)),
                torch.maximum(high, below),
            )
        )
    lows, middles, highs = zip(*columns, strict=True)
    # The median of nine is that of the largest low, the middle middle and the smallest high.
    return _middle(
        torch.maximum(torch.maximum(lows[0], lows[1]), lows[2]),
        _middle(*middles),
        torch.minimum(torch.minimum(highs[0], highs[1]), highs[2]),
    )


def _middle(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), c))


def denoise(x: Tensor, scale: float) -> Tensor:
    """The adaptive filter of Wiener: smooth where local variance is no larger than noise explains."""
    width = 2 * max(1, round(1.5 * scale)) + 1
    mean, square = (_box(value, width) for value in (x, x * x))
    variance = (square - mean * mean).clamp(min=0)
    noise = variance.mean(dim=(1, 2), keepdim=True)
    return mean + (1 - noise / variance.clamp(min=1e-8)).clamp(min=0) * (x - mean)


def _box(x: Tensor, width: int) -> Tensor:
    """The average over squares of that width, first along columns, then along rows."""
    padded = F.pad(x[None], (width // 2,) * 4, mode="replicate")
    return F.avg_pool2d(F.avg_pool2d(padded, (width, 1), stride=1), (1, width), stride=1)[0]


def nonlocal_means(x: Tensor, scale: float) -> Tensor:
    """Every pixel averaged with those near it whose surroundings differ no more than noise explains."""
    height, width = x.shape[1:]
    near = min(NEAR, height - 1, width - 1)
    padded = F.pad(x[None], (near,) * 4, mode="reflect")[0]
    steps = range(2 * near + 1)
    others = torch.stack([padded[:, i : i + height, j : j + width] for i in steps for j in steps])
    difference = _box((others - x).square_().mean(dim=1), 2 * max(1, round(scale)) + 1)
    noise = noise_variance(x)
    weight = torch.exp(-(difference - 2 * noise).clamp_(min=0) / (STRENGTH * noise).clamp(min=1e-8))
    return torch.einsum("nhw,nchw->chw", weight, others) / weight.sum(dim=0)


def noise_variance(x: Tensor) -> Tensor:
    """Of white noise, from the median of second differences in both directions, which edges barely move."""
    kernel = torch.tensor([1.0, -2.0, 1.0], dtype=x.dtype, device=x.device)
    padded = F.pad(x[:, None], (1, 1, 1, 1), mode="replicate")
    response = F.conv2d(padded, torch.outer(kernel, kernel)[None, None])
    return (response.abs().median() / (6 * 0.6745)) ** 2


def autocontrast(x: Tensor, scale: float) -> Tensor:
    """Every channel stretched to 0..1, a hundredth of its pixels clipped at either end."""
    flat = x.flatten(1).sort(dim=1).values
    cut = int(CLIPPED * flat.shape[1])
    low, high = flat[:, cut, None, None], flat[:, -1 - cut, None, None]
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def equalize(x: Tensor, scale: float) -> Tensor:
    """Every channel with an even histogram: a pixel becomes the share of pixels below it."""
    flat = x.flatten(1).contiguous()
    ordered = flat.sort(dim=1).values
    below, upto = (torch.searchsorted(ordered, flat, right=right) for right in (False, True))
    return ((below + upto).to(x.dtype) / (2 * flat.shape[1])).view_as(x)


def sharpen(x: Tensor, scale: float) -> Tensor:
    """What blurring takes away, added once more."""
    return x + 1.5 * (x - blur(x, scale))


def deblur(x: Tensor, scale: float) -> Tensor:
    """A Gaussian blur undone in the frequency domain, as far as noise allows (Wiener)."""
    height, width = x.shape[1:]
    rim = min(math.ceil(4 * scale), height - 1, width - 1)
    padded = F.pad(x[None], (rim,) * 4, mode="reflect")[0]
    rows = torch.fft.fftfreq(padded.shape[1], device=x.device)[:, None]
    columns = torch.fft.rfftfreq(padded.shape[2], device=x.device)[None]
    passed = torch.exp(-2 * (math.pi * scale) ** 2 * (rows**2 + columns**2))
    undone = torch.fft.rfft2(padded) * passed / (passed**2 + NOISE_TO_SIGNAL)
    sharp = torch.fft.irfft2(undone, s=padded.shape[1:]) * (1 + NOISE_TO_SIGNAL)
    return sharp[:, rim : rim + height, rim : rim + width]


RESTORATIONS: Registry[Restoration] = Registry(
    "restoration",
    {
        "plain": plain,
        "soften": lambda x, scale: blur(x, 0.5 * scale),
        "blur": lambda x, scale: blur(x, 0.8 * scale),
        "median": median,
        "denoise": denoise,
        "nonlocal": nonlocal_means,
        "autocontrast": autocontrast,
        "equalize": equalize,
        "sharpen": sharpen,
        "deblur": deblur,
    },
)
