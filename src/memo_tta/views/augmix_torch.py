"""AugMix plans carried out by torch alone, on any device, with many views at once.

Chains are rows, uint8 (rows, channels, height, width). At each depth, all rows with the same operation are
processed together; all kinds of warps count as one operation.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from memo_tta.views.augmix_plan import FILL, MAX_DEPTH, NO_NORMALISATION, OPERATIONS, WIDTH, AugMixPlan

VALUES = 256
WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
CPU_PIXELS = 2**17  # processed at once on a CPU, so that intermediate results stay in its cache


def mix(
    plan: AugMixPlan,
    crops: np.ndarray,
    device: torch.device | str,
    mean: Sequence[float] = NO_NORMALISATION[0],
    std: Sequence[float] = NO_NORMALISATION[1],
) -> Tensor:
    """Return normalised views, float32 on the device, of crops, uint8 (n, channels, height, width)."""
    n, _, height, width = crops.shape
    step = max(1, CPU_PIXELS // (height * width)) if torch.device(device).type == "cpu" else n
    parts = [slice(first, first + step) for first in range(0, n, step)]
    views = torch.cat([_mix_part(plan, part, torch.from_numpy(crops[part]).to(device)) for part in parts])
    centre, spread = (torch.tensor(values, device=device).view(-1, 1, 1) for values in (mean, std))
    return views.div_(255).sub_(centre).div_(spread)


def _mix_part(plan: AugMixPlan, part: slice, crops: Tensor) -> Tensor:
    """Return the views of these crops, float32 in 0..255; `part` is their place in the plan."""
    rows = crops.repeat_interleave(WIDTH, dim=0)
    for depth in range(MAX_DEPTH):
        operations, parameters = (a[part, :, depth].ravel() for a in (plan.operations, plan.parameters))
        for names, apply in STEPS:
            chosen = np.isin(operations, [OPERATIONS.index(name) for name in names])
            if names is WARPS:
                chosen &= parameters != 0
            if chosen.any():
                where = torch.from_numpy(chosen.nonzero()[0]).to(crops.device)
                rows[where] = apply(rows[where], operations[chosen], parameters[chosen])
    keep = plan.keep[part]
    shares = (1 - keep[:, None]) * plan.weights[part]
    views = crops * _per_row(keep, crops)
    for chain in range(WIDTH):
        views += rows[chain::WIDTH] * _per_row(shares[:, chain], crops)
    return views


def _per_row(values: np.ndarray, images: Tensor) -> Tensor:
    """Return one value per image, in a shape that broadcasts over its pixels."""
    return torch.from_numpy(values).to(images.device).view(-1, 1, 1, 1)


def _real(device: torch.device) -> torch.dtype:
    """Return the precision of warps: Pillow's, or less on MPS, where a pixel may differ by one grey level."""
    return torch.float32 if device.type == "mps" else torch.float64


def _look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Map every pixel by its channel's table; tables are uint8 (rows, channels, 256)."""
    return tables.gather(2, images.flatten(2).long()).view_as(images)


def _autocontrast(images: Tensor, operations: np.ndarray, parameters: np.ndarray) -> Tensor:
    values = torch.arange(VALUES, device=images.device, dtype=_real(images.device))
    low, high = (v.to(values.dtype).unsqueeze(2) for v in images.flatten(2).aminmax(dim=2))
    # Dividing a tensor: a Python number would be multiplied by the reciprocal, which rounds differently.
    scale = values[-1] / (high - low).clamp(min=1)
    stretched = (values * scale - low * scale).trunc().clamp(0, 255)
    return _look_up(images, torch.where(high > low, stretched, values).to(torch.uint8))


def _equalize(images: Tensor, operations: np.ndarray, parameters: np.ndarray) -> Tensor:
    flat = images.flatten(2).long()
    planes = torch.arange(flat[..., 0].numel(), device=flat.device).view(*flat.shape[:2], 1)
    counts = torch.bincount((planes * VALUES + flat).flatten(), minlength=planes.numel() * VALUES)
    counts = counts.view(*flat.shape[:2], VALUES)
    last = counts.gather(2, flat.amax(dim=2, keepdim=True))
    step = (flat.shape[2] - last).div(255, rounding_mode="floor")
    below = step.div(2, rounding_mode="floor") + counts.cumsum(dim=2) - counts
    spread = below.div(step.clamp(min=1), rounding_mode="floor").clamp(max=255)
    identity = torch.arange(VALUES, device=flat.device)
    return _look_up(images, torch.where(step > 0, spread, identity).to(torch.uint8))


def _solarize(images: Tensor, operations: np.ndarray, parameters: np.ndarray) -> Tensor:
    return torch.where(images < _per_row(parameters.astype(np.int32), images), images, 255 - images)


def _posterize(images: Tensor, operations: np.ndarray, parameters: np.ndarray) -> Tensor:
    masks = 256 - 2 ** (8 - parameters.astype(np.int64))
    return images & _per_row(masks.astype(np.uint8), images)


def _warp(images: Tensor, operations: np.ndarray, parameters: np.ndarray) -> Tensor:
    """Sample the pixel (x, y) bilinearly at (ax + by + c, dx + ey + f); integers are corners of pixels."""
    height, width = images.shape[2:]
    real, device = _real(images.device), images.device
    matrices = [
        _matrix(OPERATIONS[k], v, height, width)
        for k, v in zip(operations.tolist(), parameters.tolist(), strict=True)
    ]
    a, b, c, d, e, f = torch.tensor(matrices, dtype=real, device=device).T.reshape(6, -1, 1, 1)
    x = torch.arange(width, dtype=real, device=device) + 0.5
    y = torch.arange(height, dtype=real, device=device).unsqueeze(1) + 0.5
    sx, sy = a * x + b * y + c, d * x + e * y + f
    is_outside = ((sx < 0) | (sx >= width) | (sy < 0) | (sy >= height)).flatten(1)
    left, top = (sx - 0.5).floor(), (sy - 0.5).floor()
    fx, fy = (sx - 0.5 - left).flatten(1), (sy - 0.5 - top).flatten(1)
    columns = [(left + i).clamp(0, width - 1).long() for i in (0, 1)]
    rows = [(top + i).clamp(0, height - 1).long() * width for i in (0, 1)]
    corners = [[(row + column).flatten(1) for column in columns] for row in rows]
    out = torch.empty_like(images)
    for channel in range(images.shape[1]):
        plane = images[:, channel].flatten(1)
        (p00, p01), (p10, p11) = ((plane.gather(1, at).to(real) for at in pair) for pair in corners)
        upper, lower = _interpolate(p00, p01, fx), _interpolate(p10, p11, fx)
        pixels = _interpolate(upper, lower, fy).to(torch.uint8)
        out[:, channel] = pixels.masked_fill_(is_outside, FILL[channel]).view(-1, height, width)
    return out


def _interpolate(first: Tensor, second: Tensor, fraction: Tensor) -> Tensor:
    return first + (second - first) * fraction


def _matrix(operation: str, parameter: float, height: int, width: int) -> tuple[float, ...]:
    """Return (a, b, c, d, e, f) of a warp; a rotation is rounded as Pillow rounds it."""
    if operation != "rotate":
        return {
            "shear_x": (1, parameter, 0, 0, 1, 0),
            "shear_y": (1, 0, 0, parameter, 1, 0),
            "translate_x": (1, 0, parameter, 0, 1, 0),
            "translate_y": (1, 0, 0, 0, 1, parameter),
        }[operation]
    angle = -math.radians(parameter % 360)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y


Apply = Callable[[Tensor, np.ndarray, np.ndarray], Tensor]
STEPS: list[tuple[tuple[str, ...], Apply]] = [
    (("autocontrast",), _autocontrast),
    (("equalize",), _equalize),
    (("solarize",), _solarize),
    (("posterize",), _posterize),
    (WARPS, _warp),
]
