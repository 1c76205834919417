"""Randomness that depends on the seed and the sample alone, never on order or worker count."""

import hashlib

import numpy as np

SampleId = int | str


def sample_rng(seed: int, sample_id: SampleId) -> np.random.Generator:
    """The generator of one sample: the same for the same (seed, sample_id), everywhere."""
    name = f"{type(sample_id).__name__}:{sample_id}".encode()
    words = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint32)
    return np.random.Generator(np.random.PCG64([seed, *words.tolist()]))


def content_id(array: np.ndarray) -> str:
    """A sample id made from the data itself, for a point that has no id of its own."""
    array = np.ascontiguousarray(array)
    digest = hashlib.blake2b(array.data, digest_size=16)
    digest.update(f"{array.shape}{array.dtype}".encode())
    return digest.hexdigest()
