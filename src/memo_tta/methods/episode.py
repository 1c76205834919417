"""Lend a module to one adaptation: whatever happens, it comes back bit for bit."""

import os
from collections.abc import Callable, Iterator, Sequence
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

# Two threads must not adapt one module at a time.
_LOCKS: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()


def run_exclusively(module: nn.Module, body: Callable[[], Value]) -> Value:
    """Return body(), run while no other thread adapts the module; all episodes belong in here.

    Gradients are on inside, also where the caller is under no_grad or inference_mode.
    """
    with _LOCKS.setdefault(module, RLock()):  # written in C: no signal handler runs between lock and block
        return protected(lambda: _with_gradients(body))


def _with_gradients(body: Callable[[], Value]) -> Value:
    mode = torch.inference_mode(False)  # turns gradients on too
    caching = torch.is_autocast_cache_enabled()

    def leave() -> None:
        with suppress(AttributeError):  # interrupted before it was entered
            mode.__exit__(None, None, None)
        torch.set_autocast_cache_enabled(caching)

    with undoing(leave, of_thread=True):
        mode.__enter__()
        torch.set_autocast_cache_enabled(False)  # what was cast before a step must be cast again after it
        return body()


@contextmanager
def episode(module: nn.Module, adapted: Sequence[Parameter] = ()) -> Iterator[None]:
    """Evaluation mode, and gradients for `adapted` alone."""
    with undoing(*snapshot(module, adapted)):
        module.eval()
        wanted = {id(p) for p in adapted}
        for parameter in module.parameters():
            parameter.requires_grad = id(parameter) in wanted
        yield


def snapshot(module: nn.Module, adapted: Sequence[Parameter]) -> list[Callable[[], None]]:
    """How to restore all that an adaptation may change: modes, flags, buffers, values of `adapted`."""
    layers, parameters = list(module.modules()), list(module.parameters())
    return [
        *(partial(setattr, layer, "training", layer.training) for layer in layers),
        *(partial(setattr, p, "requires_grad", p.requires_grad) for p in parameters),
        *(partial(_put_buffers, layer, dict(layer._buffers)) for layer in layers),
        *(partial(_put_value, buffer, buffer.detach().clone()) for buffer in module.buffers()),
        *(partial(_put_value, p, p.detach().clone()) for p in adapted),
    ]


def _put_value(tensor: Tensor, value: Tensor) -> None:
    # `.data` leaves version counters alone: the values are the same again, so a graph that the user
    # still holds stays valid.
    tensor.data.copy_(value)


def _put_buffers(layer: nn.Module, buffers: dict[str, Tensor | None]) -> None:
    """Give the layer its own buffers back, and none that it did not have."""
    layer._buffers.clear()
    layer._buffers.update(buffers)


def _renew_in_child() -> None:
    """A lock held by a thread that did not survive the fork would never be released."""
    _LOCKS.clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # nor did the threads that torch computes with
    if not undo_for_lost_threads():
        torch.set_num_threads(threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)
