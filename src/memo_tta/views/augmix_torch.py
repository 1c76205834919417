"""A plan of AugMix views carried out by torch alone, on any device, all views at once.

Chains are rows, uint8 (rows, 3, height, width). At each depth, the rows that have an operation in common
go through it together; warps of all kinds are one.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from memo_tta.views.augmix_plan import FILL, MAX_DEPTH, OPERATIONS, UNCHANGED, WIDTH, AugMixPlan

VALUES = 256
WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")


def execute_on(
    plan: AugMixPlan,
    crops: np.ndarray,
    device: torch.device | str,
    mean: Sequence[float] = UNCHANGED[0],
    std: Sequence[float] = UNCHANGED[1],
) -> Tensor:
    """As `augmix.execute`, with the crops sent to the device and the views made there."""
    originals = torch.from_numpy(crops).to(device)
    rows = originals.repeat_interleave(WIDTH, dim=0)
    for depth in range(MAX_DEPTH):
        operations, parameters = (a[:, :, depth].ravel() for a in (plan.operations, plan.parameters))
        for names, apply in STEPS:
            chosen = np.isin(operations, [OPERATIONS.index(name) for name in names])
            if names is WARPS:
                chosen &= parameters != 0
            if chosen.any():
                where = torch.from_numpy(chosen.nonzero()[0]).to(device)
                rows[where] = apply(rows[where], operations[chosen], parameters[chosen])
    shares = (1 - plan.keep[:, None]) * plan.weights
    views = originals * _per_row(plan.keep, originals)
    for chain in range(WIDTH):
        views += rows[chain::WIDTH] * _per_row(shares[:, chain], originals)
    centre, spread = (torch.tensor(values, device=device).view(3, 1, 1) for values in (mean, std))
    return views.div_(255).sub_(centre).div_(spread)


def _per_row(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device).view(-1, 1, 1, 1)


def _real(device: torch.device) -> torch.dtype:
    """Pillow computes in double precision; where there is none, one grey level may differ."""
    return torch.float32 if device.type == "mps" else torch.float64


def _look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Tables are uint8 (rows, 3, 256)."""
    return tables.gather(2, images.flatten(2).long()).view_as(images)


def _autocontrast(images: Tensor, operations: np.ndarray, parameters: np.ndarray) -> Tensor:
    values = torch.arange(VALUES, device=images.device, dtype=_real(images.device))
    low, high = (v.to(values.dtype).unsqueeze(2) for v in images.flatten(2).aminmax(dim=2))
    scale = values[-1] / (high - low).clamp(min=1)  # a plain 255 would be multiplied by the reciprocal
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
    """Bilinear: pixel (x, y) takes (ax + by + c, dx + ey + f), where whole numbers are pixels' corners."""
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
    outside = ((sx < 0) | (sx >= width) | (sy < 0) | (sy >= height)).flatten(1)
    left, top = (sx - 0.5).floor(), (sy - 0.5).floor()
    fx, fy = (sx - 0.5 - left).flatten(1), (sy - 0.5 - top).flatten(1)
    columns = [(left + i).clamp(0, width - 1).long() for i in (0, 1)]
    lines = [(top + i).clamp(0, height - 1).long() * width for i in (0, 1)]
    corners = [[(line + column).flatten(1) for column in columns] for line in lines]
    out = torch.empty_like(images)
    for channel in range(images.shape[1]):
        plane = images[:, channel].flatten(1)
        (p00, p01), (p10, p11) = ((plane.gather(1, at).to(real) for at in pair) for pair in corners)
        upper, lower = _between(p00, p01, fx), _between(p10, p11, fx)
        pixels = _between(upper, lower, fy).to(torch.uint8)
        out[:, channel] = pixels.masked_fill_(outside, FILL[channel]).view(-1, height, width)
    return out


def _between(first: Tensor, second: Tensor, fraction: Tensor) -> Tensor:
    return first + (second - first) * fraction


def _matrix(operation: str, parameter: float, height: int, width: int) -> tuple[float, ...]:
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
