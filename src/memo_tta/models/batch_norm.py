"""Batch-norm statistics of training mixed with those of the test input (section 3.2 of the paper)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from memo_tta.interrupts import undoing

STATISTICS = ("running_mean", "running_var")


def norm_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers with "norm" in the name of a class or base class: there is no common base class."""
    return [
        layer
        for layer in module.modules()
        if any("norm" in kind.__name__.lower() for kind in type(layer).__mro__)
    ]


def statistics_layers(module: nn.Module) -> list[nn.Module]:
    """Return the normalisation layers that keep a running mean and variance."""
    return [
        layer
        for layer in norm_layers(module)
        if all(isinstance(layer._buffers.get(name), Tensor) for name in STATISTICS)
    ]


def can_mix_groups(layers: Sequence[nn.Module], prior_strength: float | None) -> bool:
    """Return whether one forward pass can give several groups of inputs mixed statistics of their own."""
    is_mixed = prior_strength is not None and prior_strength > 0
    return is_mixed and all(isinstance(layer, _BatchNorm) for layer in layers)


class MixedStatistics:
    """Make each layer normalise with N/(N+n) times its running statistics plus n/(N+n) times the batch's.

    N is the prior strength, and n the number of test points, not of their views. The batch's statistics are
    those of the layer's input, with unbiased variance; the mixed ones are constants for the gradient. With
    N = 0 a batch-norm layer normalises by its batch alone, as in training, and the gradient flows through the
    statistics, as in Tent.

    With group sizes, a forward pass takes several groups of inputs, one after the other, and each of them is
    normalised with its own mixed statistics.
    """

    def __init__(
        self, layers: list[nn.Module], prior_strength: float, points: int, groups: Sequence[int] | None = None
    ):
        self.prior_strength = prior_strength
        self.weight = prior_strength / (prior_strength + points)
        self._groups = None if groups is None else list(groups)
        self._is_fixed = False
        self._running: dict[nn.Module, list[Any]] = {
            layer: [layer._buffers[name] for name in STATISTICS] for layer in layers
        }

    def attach(self) -> None:
        """Start mixing, by a forward pre-hook on each layer."""
        for layer in self._running:
            layer.register_forward_pre_hook(self._hook)

    def detach(self) -> None:
        """Stop mixing, and restore the running statistics."""
        for layer, running in self._running.items():
            hooks = layer._forward_pre_hooks
            for key in [key for key, hook in hooks.items() if hook == self._hook]:
                hooks.pop(key, None)
            layer._buffers.update(zip(STATISTICS, running, strict=True))

    def fix(self, forward: Callable[[], object]) -> None:
        """Mix the statistics of this forward pass, and use them for all later ones until `release`."""
        self.release()
        if self._running:
            with torch.no_grad():
                forward()
        self._is_fixed = True

    def release(self) -> None:
        """Mix the statistics of every forward pass again."""
        self._is_fixed = False

    def _hook(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self._is_fixed:
            return None
        if self._groups is not None:
            return self._rescaled(layer, inputs[0]), *inputs[1:]
        x = inputs[0]
        is_batch_alone = self.prior_strength == 0 and isinstance(layer, _BatchNorm) and _has_variance(x)
        mixed = (None, None) if is_batch_alone else self._mixed(layer, x)
        layer._buffers.update(zip(STATISTICS, mixed, strict=True))
        return None

    @torch.no_grad()
    def _mixed(self, layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the running mean and variance mixed with those of the layer's input."""
        mean, variance = self._running[layer]
        if not _has_variance(x):
            return mean, variance
        mean, variance = mean.clone(), variance.clone()
        torch.batch_norm_update_stats(x, mean, variance, 1 - self.weight)
        return mean, variance

    def _rescaled(self, layer: nn.Module, x: Tensor) -> Tensor:
        """Return the input such that the running statistics normalise it as each group's mixed ones would."""
        assert self._groups is not None
        assert isinstance(layer, _BatchNorm)  # the others may not have an epsilon
        mean, variance = self._running[layer]
        mixed = [self._mixed(layer, group) for group in torch.split(x, self._groups)]
        own_mean, own_variance = (torch.stack(statistics) for statistics in zip(*mixed, strict=True))
        scale = ((variance + layer.eps) / (own_variance + layer.eps)).sqrt()
        sizes = torch.tensor(self._groups, device=x.device)
        scale, offset = (
            rows.repeat_interleave(sizes, dim=0).reshape(*x.shape[:2], *[1] * (x.ndim - 2)).to(x.dtype)
            for rows in (scale, mean - own_mean * scale)
        )
        return torch.addcmul(offset, x, scale)


def _has_variance(x: Tensor) -> bool:
    """Return whether a variance can be estimated: not from one value per channel."""
    return x.numel() // x.shape[1] >= 2


@contextmanager
def mixed_statistics(
    module: nn.Module, prior_strength: float | None, points: int = 1, groups: Sequence[int] | None = None
) -> Iterator[MixedStatistics]:
    """Mix statistics within a `with` block; a prior strength of None leaves all layers as they are."""
    layers = [] if prior_strength is None else statistics_layers(module)
    mixing = MixedStatistics(layers, prior_strength or 0.0, points, groups)
    with undoing(mixing.detach):
        mixing.attach()
        yield mixing
