"""Choose the parameters that a method adapts."""

import re
from collections.abc import Callable

from torch import nn
from torch.nn import Parameter

from memo_tta.errors import ConfigError, ModelError
from memo_tta.models.batch_norm import norm_layers

ParameterChoice = str | Callable[[str, Parameter], bool]


def choose_parameters(module: nn.Module, choice: ParameterChoice) -> list[Parameter]:
    """Return the parameters of a choice; raise ConfigError if there are none.

    A choice is 'all', 'norm', 'head', a regular expression searched in the names, or a predicate of (name,
    parameter).
    """
    named = [(name, p) for name, p in module.named_parameters() if p.is_floating_point() and p.numel()]
    is_chosen = _predicate(module, choice)
    chosen = [p for name, p in named if is_chosen(name, p)]
    if not chosen:
        raise ConfigError(
            f"params: {choice!r} matches none of the {len(named)} parameters of {type(module).__name__}"
        )
    if any(p.is_inference() for p in chosen):
        raise ModelError(
            f"{type(module).__name__}: was built under inference_mode and cannot be adapted: build it outside"
        )
    return chosen


def _predicate(module: nn.Module, choice: ParameterChoice) -> Callable[[str, Parameter], bool]:
    if callable(choice):
        return choice
    if choice == "all":
        return lambda _name, _parameter: True
    if choice in LAYERS:
        ids = {id(p) for layer in LAYERS[choice](module) for p in layer.parameters(recurse=False)}
        return lambda _name, parameter: id(parameter) in ids
    try:
        pattern = re.compile(choice)
    except re.error as error:
        raise ConfigError(
            f"params: {choice!r} is neither 'all', 'norm' or 'head' nor a regular expression ({error})"
        ) from None
    return lambda name, _parameter: pattern.search(name) is not None


def _head(module: nn.Module) -> list[nn.Module]:
    """Return the last layer that has a weight matrix of its own, as a list."""
    layers = [
        layer for layer in module.modules() if any(p.ndim >= 2 for p in layer.parameters(recurse=False))
    ]
    return layers[-1:]


# The layers whose parameters a named choice means.
LAYERS: dict[str, Callable[[nn.Module], list[nn.Module]]] = {"norm": norm_layers, "head": _head}
