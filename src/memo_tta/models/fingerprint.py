"""Whether two modules hold the same weights, bit for bit."""

import hashlib

import torch
from torch import nn


def fingerprint(module: nn.Module) -> str:
    """Digest all parameters and buffers that the module saves."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        # As bytes: numpy has no bfloat16.
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
