"""Random generators that depend only on the seed and the sample, not on order or worker count."""

import hashlib

import numpy as np

SampleId = int | str


def sample_rng(seed: int, sample_id: SampleId) -> np.random.Generator:
    """Return the generator of one sample: the same for the same (seed, sample_id) on every machine."""
    name = f"{type(sample_id).__name__}:{sample_id}".encode()
    words = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint32)
    return np.random.Generator(np.random.PCG64([seed, *words.tolist()]))


def content_id(array: np.ndarray) -> str:
    """Return a hash of the array's content, shape and dtype: the sample id of a point that has none."""
    array = np.ascontiguousarray(array)
    digest = hashlib.blake2b(array.data, digest_size=16)
    digest.update(f"{array.shape}{array.dtype}".encode())
    return digest.hexdigest()
