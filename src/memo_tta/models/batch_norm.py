"""Batch-norm statistics of the test input, mixed with those of training (section 3.2)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from memo_tta.interrupts import undoing

STATISTICS = ("running_mean", "running_var")


def norm_layers(module: nn.Module) -> list[nn.Module]:
    """Normalisation layers by name, their own or a base's: libraries share no base class with torch's."""
    return [
        layer
        for layer in module.modules()
        if any("norm" in kind.__name__.lower() for kind in type(layer).__mro__)
    ]


def statistics_layers(module: nn.Module) -> list[nn.Module]:
    """The normalisation layers that keep a running mean and variance."""
    return [
        layer
        for layer in norm_layers(module)
        if all(isinstance(layer._buffers.get(name), Tensor) for name in STATISTICS)
    ]


class MixedStatistics:
    """While attached, each layer normalises with N/(N+n) of its running and n/(N+n) of the test statistics.

    n counts the test points, however many views of each are in the batch. The test statistics are
    those of the batch going through the layer, the variance unbiased, both constants for the
    gradient; the layer's own forward does the rest. With N = 0 a batch-norm layer normalises by its
    batch alone, as in training, and the gradient flows through the statistics (as in Tent).
    """

    def __init__(self, layers: list[nn.Module], prior_strength: float, points: int):
        self.prior_strength = prior_strength
        self.weight = prior_strength / (prior_strength + points)
        self._fixed = False
        self._running: dict[nn.Module, list[Any]] = {
            layer: [layer._buffers[name] for name in STATISTICS] for layer in layers
        }

    def attach(self) -> None:
        for layer in self._running:
            layer.register_forward_pre_hook(self._mix)

    def detach(self) -> None:
        for layer, running in self._running.items():
            hooks = layer._forward_pre_hooks
            for key in [key for key, hook in hooks.items() if hook == self._mix]:
                hooks.pop(key, None)
            layer._buffers.update(zip(STATISTICS, running, strict=True))

    def fix(self, forward: Callable[[], object]) -> None:
        """Take the statistics of this forward and keep them for all that follow, until `release`."""
        self.release()
        if self._running:
            with torch.no_grad():
                forward()
        self._fixed = True

    def release(self) -> None:
        self._fixed = False

    def _mix(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._fixed:
            return
        x, running = inputs[0], self._running[layer]
        if x.numel() // x.shape[1] < 2:
            mixed = running  # one value per channel has no variance to estimate
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
    """Mix for as long as the block lasts; a prior strength of None mixes nothing."""
    layers = [] if prior_strength is None else statistics_layers(module)
    mixing = MixedStatistics(layers, prior_strength or 0.0, points)
    with undoing(mixing.detach):
        mixing.attach()
        yield mixing
