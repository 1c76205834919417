"""Lend a module to one adaptation: whatever happens in between, it comes back bit for bit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn import Parameter

from memo_tta.interrupts import run_to_end

# Two threads must not adapt one module at a time.
_LOCKS: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()


class Snapshot:
    """All that an adaptation may change: values of `adapted`, buffers, modes, gradient flags."""

    def __init__(self, module: nn.Module, adapted: Sequence[Parameter]):
        self._modes = [(layer, layer.training) for layer in module.modules()]
        self._flags = [(p, p.requires_grad) for p in module.parameters()]
        self._values = [(p, p.detach().clone()) for p in adapted]
        self._buffers = [
            (layer, name, buffer, buffer.detach().clone())
            for layer in module.modules()
            for name, buffer in layer.named_buffers(recurse=False)
        ]

    def restore(self) -> None:
        # `.data` leaves version counters alone: the values are the same again, so a graph that the
        # user still holds stays valid.
        for parameter, value in self._values:
            parameter.data.copy_(value)
        for layer, name, buffer, value in self._buffers:
            buffer.data.copy_(value)
            layer._buffers[name] = buffer
        for parameter, flag in self._flags:
            parameter.requires_grad = flag
        for layer, training in self._modes:
            layer.training = training


@contextmanager
def episode(module: nn.Module, adapted: Sequence[Parameter] = ()) -> Iterator[None]:
    """Evaluation mode, gradients for `adapted` alone, also under no_grad and inference_mode."""
    with _LOCKS.setdefault(module, RLock()), torch.inference_mode(False), torch.enable_grad():
        snapshot = Snapshot(module, adapted)
        try:
            module.eval()
            wanted = {id(p) for p in adapted}
            for parameter in module.parameters():
                parameter.requires_grad = id(parameter) in wanted
            yield
        finally:
            run_to_end(snapshot.restore)
