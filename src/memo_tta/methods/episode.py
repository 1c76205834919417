"""Episodes: change a module for one adaptation and restore it exactly, even after an interrupt."""

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import RLock
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from memo_tta.interrupts import protected, undo_for_lost_threads, undoing

Value = TypeVar("Value")

# Only one thread at a time may adapt a module.
_LOCKS: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()


def run_exclusively(module: nn.Module, body: Callable[[], Value]) -> Value:
    """Return body(), run while no other thread adapts the module; every episode must run inside such a call.

    Gradients are enabled inside, even if the caller has disabled them with no_grad or inference_mode.
    """
    # RLock is written in C: no signal handler can run between taking the lock and entering the block.
    with _LOCKS.setdefault(module, RLock()):
        return protected(lambda: _with_gradients(body))


def _with_gradients(body: Callable[[], Value]) -> Value:
    mode = torch.inference_mode(False)  # enables gradients too
    caching = torch.is_autocast_cache_enabled()

    def leave() -> None:
        with suppress(AttributeError):  # interrupted before __enter__
            mode.__exit__(None, None, None)
        torch.set_autocast_cache_enabled(caching)

    with undoing(leave, is_thread_local=True):
        mode.__enter__()
        torch.set_autocast_cache_enabled(False)  # weights change in a step, so cached casts would be stale
        return body()


@contextmanager
def episode(module: nn.Module, adapted: Sequence[Parameter] = ()) -> Generator[None]:
    """Set evaluation mode and enable gradients for `adapted` only; restore the module at the end."""
    layers = list(module.modules())
    with undoing(*snapshot(layers, adapted)):
        if any(layer.training for layer in layers):
            module.eval()
        adapted_ids = {id(p) for p in adapted}
        _set_flags((p, id(p) in adapted_ids) for p in _parameters(layers))
        yield


def snapshot(layers: Sequence[nn.Module], adapted: Sequence[Parameter]) -> list[Callable[[], None]]:
    """Return actions that restore modes, flags, buffers and the values of `adapted` to what they are now."""
    modes = [(layer, layer.training) for layer in layers]
    flags = [(p, p.requires_grad) for p in _parameters(layers)]
    buffers = [(layer, dict(_buffers(layer))) for layer in layers]
    values = [*adapted, *{id(b): b for _, found in buffers for b in found.values() if b is not None}.values()]
    return [
        partial(_set_modes, modes),
        partial(_set_flags, flags),
        partial(_restore_buffers, buffers),
        *(partial(_restore_value, tensor, tensor.detach().clone()) for tensor in values),
    ]


def _set_modes(modes: Iterable[tuple[nn.Module, bool]]) -> None:
    for layer, training in modes:
        if layer.training is not training:  # setting an attribute of a module is slow
            layer.training = training


def _set_flags(flags: Iterable[tuple[Parameter, bool]]) -> None:
    for parameter, requires_grad in flags:
        if parameter.requires_grad is not requires_grad:
            parameter.requires_grad = requires_grad


def _restore_value(tensor: Tensor, value: Tensor) -> None:
    # `.data` leaves the version counter alone: the value is the same again, so a graph that the user still
    # holds stays valid.
    tensor.data.copy_(value)


def _restore_buffers(buffers: Iterable[tuple[nn.Module, dict[str, Tensor | None]]]) -> None:
    """Restore the buffer objects of the layers and remove those added since."""
    for layer, found in buffers:
        _buffers(layer).clear()
        _buffers(layer).update(found)


def _buffers(layer: nn.Module) -> dict[str, Tensor | None]:
    return layer._buffers  # pyright: ignore[reportPrivateUsage]  # named_buffers() leaves out those that are None


def _parameters(layers: Iterable[nn.Module]) -> list[Parameter]:
    """Return the parameters of the layers, each once; faster than to walk through the module again."""
    found = (p for layer in layers for p in layer._parameters.values() if p is not None)  # pyright: ignore[reportPrivateUsage]
    return list({id(p): p for p in found}.values())


def _reset_after_fork() -> None:
    """Replace locks and undo changes of threads that did not survive the fork."""
    _LOCKS.clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # torch's own compute threads did not survive either
    if not undo_for_lost_threads():
        torch.set_num_threads(threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
