"""Gradients of a batch in shards, one thread each: all cores, and the same bits on any number of them."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, reduce
from os import cpu_count

import torch
from torch import Tensor, nn

SHARD = 64  # images; smaller ones are slower, larger ones leave cores idle

Loss = Callable[..., tuple[Tensor, Tensor]]  # (model, *tensors of a shard) -> mean loss, number right


@contextmanager
def shard_threads() -> Iterator[Executor]:
    """As many threads as cores, in which torch uses one thread."""
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(cpu_count(), initializer=partial(torch.set_num_threads, 1)) as threads:
            yield threads
    finally:
        torch.set_num_threads(before)


def set_gradients(
    model: nn.Module, loss: Loss, batch: Sequence[Tensor], threads: Executor
) -> tuple[float, int]:
    """Set every parameter's gradient of the mean loss; that loss, and how many were right."""
    parameters, size = list(model.parameters()), len(batch[0])

    def shard_gradients(*shard: Tensor) -> tuple[float, int, tuple[Tensor, ...]]:
        mean, right = loss(model, *shard)
        weighted = mean * (len(shard[0]) / size)
        return float(weighted.detach()), int(right), torch.autograd.grad(weighted, parameters)

    shards = [tensor.split(SHARD) for tensor in batch]
    losses, rights, gradients = zip(*threads.map(shard_gradients, *shards), strict=True)
    for parameter, terms in zip(parameters, zip(*gradients, strict=True), strict=True):
        parameter.grad = reduce(torch.add, terms)
    return sum(losses), sum(rights)
