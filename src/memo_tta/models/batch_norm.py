"""Batch-norm statistics of training mixed with those of the test input (section 3.2 of the paper)."""

from collections.abc import Callable, Iterator
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


class MixedStatistics:
    """Make each layer normalise with N/(N+n) times its running statistics plus n/(N+n) times the batch's.

    N is the prior strength, and n the number of test points, not of their views. The batch's statistics are
    those of the layer's input, with unbiased variance; the mixed ones are constants for the gradient. With
    N = 0 a batch-norm layer normalises by its batch alone, as in training, and the gradient flows through the
    statistics, as in Tent.
    """

    def __init__(self, layers: list[nn.Module], prior_strength: float, points: int):
        self.prior_strength = prior_strength
        self.weight = prior_strength / (prior_strength + points)
        self._is_fixed = False
        self._running: dict[nn.Module, list[Any]] = {
            layer: [layer._buffers[name] for name in STATISTICS] for layer in layers
        }

    def attach(self) -> None:
        """Start mixing, by a forward pre-hook on each layer."""
        for layer in self._running:
            layer.register_forward_pre_hook(self._mix)

    def detach(self) -> None:
        """Stop mixing, and restore the running statistics."""
        for layer, running in self._running.items():
            hooks = layer._forward_pre_hooks
            for key in [key for key, hook in hooks.items() if hook == self._mix]:
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

    def _mix(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._is_fixed:
            return
        x, running = inputs[0], self._running[layer]
        if x.numel() // x.shape[1] < 2:
            mixed = running  # a variance cannot be estimated from one value per channel
        elif self.prior_strength == 0 and isinstance(layer, _BatchNorm):
            mixed = [None, None]
        else:
            with torch.no_grad():
                mean, var = mixed = [statistic.clone() for statistic in running]
                torch.batch_norm_update_stats(x, mean, var, 1 - self.weight)
        layer._buffers.update(zip(STATISTICS, mixed, strict=True))


@contextmanager
def mixed_statistics(
    module: nn.Module, prior_strength: float | None, points: int = 1
) -> Iterator[MixedStatistics]:
    """Mix statistics within a `with` block; a prior strength of None leaves all layers as they are."""
    layers = [] if prior_strength is None else statistics_layers(module)
    mixing = MixedStatistics(layers, prior_strength or 0.0, points)
    with undoing(mixing.detach):
        mixing.attach()
        yield mixing
