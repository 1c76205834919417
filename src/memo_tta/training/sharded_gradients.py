"""Gradients of a batch in shards, one thread per core; the number of cores does not change the bits."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, reduce
from os import cpu_count

import torch
from torch import Tensor, nn

SHARD = 64  # images; smaller shards are slower, larger ones leave cores idle

# (model, *tensors of a shard) -> mean loss, number of correct predictions
Loss = Callable[..., tuple[Tensor, Tensor]]


@contextmanager
def shard_threads() -> Iterator[Executor]:
    """Yield a pool of one thread per core; torch uses a single thread in each."""
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(cpu_count(), initializer=partial(torch.set_num_threads, 1)) as threads:
            yield threads
    finally:
        torch.set_num_threads(before)


def set_gradients(
    model: nn.Module, loss: Loss, batch: Sequence[Tensor], threads: Executor
) -> tuple[float, int]:
    """Set the gradients of the mean loss; return that loss and the number of correct predictions."""
    parameters, size = list(model.parameters()), len(batch[0])

    def shard_gradients(*shard: Tensor) -> tuple[float, int, tuple[Tensor, ...]]:
        mean, correct = loss(model, *shard)
        weighted = mean * (len(shard[0]) / size)
        return float(weighted.detach()), int(correct), torch.autograd.grad(weighted, parameters)

    shards = [tensor.split(SHARD) for tensor in batch]
    losses, corrects, gradients = zip(*threads.map(shard_gradients, *shards), strict=True)
    for parameter, terms in zip(parameters, zip(*gradients, strict=True), strict=True):
        parameter.grad = reduce(torch.add, terms)
    return sum(losses), sum(corrects)
