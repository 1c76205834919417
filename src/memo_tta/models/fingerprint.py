"""A fingerprint that two modules share if their weights are the same, bit for bit."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


def fingerprint(module: nn.Module) -> str:
    """Return a digest of the module's state dict."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        for part in _parts(value):
            digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    """Yield what a value consists of: quantised layers keep tuples of weights and bias, and types."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from _parts(part)
    elif not isinstance(value, Tensor):
        yield repr(value).encode()
    else:
        tensor = value.dequantize() if value.is_quantized else value
        # Viewed as bytes, because numpy has no bfloat16.
        yield tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
