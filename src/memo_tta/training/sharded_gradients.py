"""Gradients of a batch in shards, one thread per core; the number of cores does not change the bits."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import partial, reduce

import torch
from torch import Tensor, nn

from memo_tta.workers import available_cores

SHARD = 64  # images; smaller shards are slower, larger ones leave cores idle

# (model, *tensors of a shard) -> mean loss, number of correct predictions
Loss = Callable[..., tuple[Tensor, Tensor]]


@contextmanager
def shard_threads() -> Iterator[Executor]:
    """Yield a pool of one thread per core; torch uses a single thread in each."""
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(available_cores(), initializer=partial(torch.set_num_threads, 1)) as threads:
            yield threads
    finally:
        torch.set_num_threads(before)


class ShardedModel:
    """A model whose batches are split into shards of 64 images that run in parallel.

    Batch norm normalises over one shard (ghost batch norm; Hoffer et al., 2017). Every shard updates running
    statistics of its own, so that no two threads write to the same buffer; the model gets their mean.
    """

    def __init__(self, model: nn.Module, batch_size: int):
        self.model = model
        shared = {id(parameter): parameter for parameter in model.parameters()}
        shards = -(-batch_size // SHARD)
        self._copies = [deepcopy(model, dict(shared)) for _ in range(shards)]

    def set_gradients(self, loss: Loss, batch: Sequence[Tensor], threads: Executor) -> tuple[float, int]:
        """Set the gradients of the mean loss; return that loss and the number of correct predictions."""
        parameters, size = list(self.model.parameters()), len(batch[0])
        self._copy_buffers()

        def shard_gradients(model: nn.Module, *shard: Tensor) -> tuple[float, int, tuple[Tensor, ...]]:
            mean, correct = loss(model, *shard)
            weighted = mean * (len(shard[0]) / size)
            return float(weighted.detach()), int(correct), torch.autograd.grad(weighted, parameters)

        shards = [tensor.split(SHARD) for tensor in batch]
        used = self._copies[: len(shards[0])]
        losses, corrects, gradients = zip(*threads.map(shard_gradients, used, *shards), strict=True)
        for parameter, terms in zip(parameters, zip(*gradients, strict=True), strict=True):
            parameter.grad = reduce(torch.add, terms)
        self._average_buffers(used)
        return sum(losses), sum(corrects)

    def _copy_buffers(self) -> None:
        for copy in self._copies:
            for own, buffer in zip(copy.buffers(), self.model.buffers(), strict=True):
                own.copy_(buffer)

    def _average_buffers(self, used: Sequence[nn.Module]) -> None:
        for buffer, *own in zip(self.model.buffers(), *(copy.buffers() for copy in used), strict=True):
            # Counts of batches are whole numbers, and equal in all shards.
            buffer.copy_(reduce(torch.add, own) / len(own) if buffer.is_floating_point() else own[0])
