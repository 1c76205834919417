"""Choose the parameters that a method adapts, and change them for a while."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import nn
from torch.nn import Parameter

from memo_tta.errors import ConfigError, ModelError
from memo_tta.models.batch_norm import norm_layers

ParameterChoice = str | Callable[[str, Parameter], bool]

LAST = re.compile(r"last:(\d+)")
CONTAINERS = (nn.Sequential, nn.ModuleList)
MOST = 0.8  # of the parameters: a network in a wrapper, or an encoder between embedding and head


def choose_parameters(module: nn.Module, choice: ParameterChoice) -> list[Parameter]:
    """Return the parameters of a choice; raise ConfigError if there are none.

    A choice is 'all', 'trainable' (those with requires_grad), 'norm', 'head', 'last:K' (the last K blocks, or
    all if there are fewer), a regular expression searched in the names, or a predicate of (name, parameter).
    Autograd records nothing before the first chosen parameter: with the last blocks, no activation of the
    others is kept and no gradient flows through them.
    """
    named = [(name, p) for name, p in module.named_parameters() if p.is_floating_point() and p.numel()]
    if not named:
        raise ModelError(
            f"{type(module).__name__}: has no parameters that can be adapted: "
            "use a method that adapts none, such as source, tta or restore"
        )
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


@contextmanager
def keeping_values(parameters: Sequence[Parameter]) -> Generator[None]:
    """Give the parameters their present values again at the end of the block."""
    before = [p.detach().clone() for p in parameters]
    try:
        yield
    finally:
        for parameter, value in zip(parameters, before, strict=True):
            parameter.data.copy_(value)


def _predicate(module: nn.Module, choice: ParameterChoice) -> Callable[[str, Parameter], bool]:
    if callable(choice):
        return choice
    if choice == "all":
        return lambda _name, _parameter: True
    if choice == "trainable":
        return lambda _name, parameter: parameter.requires_grad
    if choice in LAYERS:
        return _belongs_to(p for layer in LAYERS[choice](module) for p in layer.parameters(recurse=False))
    if last := LAST.fullmatch(choice):
        return _belongs_to(p for block in _last_blocks(module, int(last[1])) for p in block.parameters())
    try:
        pattern = re.compile(choice)
    except re.error as error:
        raise ConfigError(
            f"params: {choice!r}: not 'all', 'trainable', 'norm', 'head' or 'last:K', "
            f"nor a regular expression ({error})"
        ) from None
    return lambda name, _parameter: pattern.search(name) is not None


def _belongs_to(parameters: Iterable[Parameter]) -> Callable[[str, Parameter], bool]:
    ids = {id(p) for p in parameters}
    return lambda _name, parameter: id(parameter) in ids


def _last_blocks(module: nn.Module, count: int) -> list[nn.Module]:
    """Return the last blocks, or all if there are fewer."""
    if count < 1:
        raise ConfigError(f"params: 'last:{count}': expected at least one block")
    return blocks(module)[-count:]


def blocks(module: nn.Module) -> list[nn.Module]:
    """Return the parts of a network that have parameters, in the order in which it registers them.

    A container counts as its members, and so does a part that holds most of the network.
    """
    return list(_blocks(module, MOST * _size(module)))


def _blocks(module: nn.Module, most: float) -> Iterator[nn.Module]:
    for child in module.children():
        is_expanded = type(child) in CONTAINERS or _size(child) > most
        if is_expanded and next(child.children(), None) is not None:
            yield from _blocks(child, most)
        elif _size(child):
            yield child


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _head(module: nn.Module) -> list[nn.Module]:
    """Return the last layer that has a weight matrix of its own, as a list."""
    layers = [
        layer for layer in module.modules() if any(p.ndim >= 2 for p in layer.parameters(recurse=False))
    ]
    return layers[-1:]


# The layers whose parameters a named choice means.
LAYERS: dict[str, Callable[[nn.Module], list[nn.Module]]] = {"norm": norm_layers, "head": _head}
