"""Episodes: change a module for one adaptation and restore it exactly, even after an interrupt."""

import os
from collections.abc import Callable, Generator, Sequence
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
    with undoing(*snapshot(module, adapted)):
        module.eval()
        adapted_ids = {id(p) for p in adapted}
        for parameter in module.parameters():
            parameter.requires_grad = id(parameter) in adapted_ids
        yield


def snapshot(module: nn.Module, adapted: Sequence[Parameter]) -> list[Callable[[], None]]:
    """Return actions that restore modes, flags, buffers and the values of `adapted` to what they are now."""
    layers, parameters = list(module.modules()), list(module.parameters())
    return [
        *(partial(setattr, layer, "training", layer.training) for layer in layers),
        *(partial(setattr, p, "requires_grad", p.requires_grad) for p in parameters),
        *(partial(_restore_buffers, layer, dict(_buffers(layer))) for layer in layers),
        *(partial(_restore_value, buffer, buffer.detach().clone()) for buffer in module.buffers()),
        *(partial(_restore_value, p, p.detach().clone()) for p in adapted),
    ]


def _restore_value(tensor: Tensor, value: Tensor) -> None:
    # `.data` leaves the version counter alone: the value is the same again, so a graph that the user still
    # holds stays valid.
    tensor.data.copy_(value)


def _restore_buffers(layer: nn.Module, buffers: dict[str, Tensor | None]) -> None:
    """Restore the layer's buffer objects and remove those added since."""
    _buffers(layer).clear()
    _buffers(layer).update(buffers)


def _buffers(layer: nn.Module) -> dict[str, Tensor | None]:
    return layer._buffers  # pyright: ignore[reportPrivateUsage]  # named_buffers() leaves out those that are None


def _reset_after_fork() -> None:
    """Replace locks and undo changes of threads that did not survive the fork."""
    _LOCKS.clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # torch's own compute threads did not survive either
    if not undo_for_lost_threads():
        torch.set_num_threads(threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
