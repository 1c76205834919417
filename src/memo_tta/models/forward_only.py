"""Modules that compute logits outside torch: they can be run, but nothing in them can be adapted."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from memo_tta.errors import ConfigError, ModelError
from memo_tta.registry import Registry

# What a function takes: made from a float32 tensor (N, ...) on the CPU.
INPUTS: Registry[Callable[[Tensor], Any]] = Registry(
    "kind of input", {"numpy": lambda x: x.numpy(), "tensor": lambda x: x}
)


class ForwardOnly(nn.Module):
    """A module without parameters, whose logits have no gradient."""


class FunctionModule(ForwardOnly):
    """A function from a batch of normalised inputs, float32 (N, ...), to logits (N, K)."""

    def __init__(self, function: Callable[[Any], Any], takes: str):
        super().__init__()
        if not callable(function):
            raise ConfigError(f"function: expected a function of a batch, got {type(function).__name__}")
        # Not as an attribute of its own: if it is a module, it would be a part of this one, and restored.
        self._call, self._takes = partial(function), takes
        _ = INPUTS[takes]

    def __deepcopy__(self, _memo: dict[int, Any]) -> "FunctionModule":
        """Return another module of the same function, which may not be possible to copy."""
        return FunctionModule(self._call.func, self._takes)

    def forward(self, x: Tensor) -> Tensor:
        output = self._call(INPUTS[self._takes](x.detach().float().cpu().contiguous()))
        if isinstance(output, Tensor):
            return output.detach()
        try:
            return torch.from_numpy(np.array(output, np.float32))
        except (TypeError, ValueError):
            raise ModelError(
                f"function: expected logits (N, K) as an array or a tensor, got {type(output).__name__}"
            ) from None
