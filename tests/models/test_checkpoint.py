"""Weights files of every format are loaded bit for bit."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from tests.models.checkpoints import SAVERS, TORCH_SAVERS, Net, assert_equal, complaint, loaded, trained


@pytest.mark.parametrize("name", SAVERS)
def test_weights_come_back_bit_for_bit(tmp_path, name):
    SAVERS[name](trained(), tmp_path / name)
    assert_equal(loaded(tmp_path / name), trained())
    assert_equal(loaded(str(tmp_path / name)), trained())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(
            ["weights.pth", "weights.safetensors", "weights.npz"], [torch.float16, torch.float64]
        ),
        *itertools.product(["weights.pth", "weights.safetensors"], [torch.bfloat16]),
    ],
)
def test_numbers_of_another_precision_become_the_modules(tmp_path, name, dtype):
    state = {key: value.to(dtype) if value.is_floating_point() else value for key, value in trained().items()}
    SAVERS[name](state, tmp_path / name)
    assert_equal(loaded(tmp_path / name), trained())


def test_a_module_of_half_precision_stays_so(tmp_path):
    torch.save(trained(), tmp_path / "weights.pth")
    halves = {key: value.half() if value.is_floating_point() else value for key, value in trained().items()}
    assert_equal(loaded(tmp_path / "weights.pth", Net().half()), halves)


# Where the state dict is


WRAPPED = {
    name: lambda state, name=name: {"epoch": 3, "optimizer": {"lr": 0.1}, name: state}
    for name in (
        *("state_dict", "model_state_dict", "net", "model", "model_state", "module"),
        *("model_ema", "ema_state_dict", "params", "weights"),
    )
}
WRAPPED |= {
    "beside other values": lambda state: {
        **state,
        "epoch": 3,
        "arch": "net",
        7: "seven",
        "best": torch.tensor(0.9),
    },
    "nested twice": lambda state: {"epoch": 3, "model": {"name": "net", "state_dict": state}},
    "of parameters": lambda state: {
        key: nn.Parameter(value) if value.is_floating_point() else value for key, value in state.items()
    },
    "model before its average": lambda state: {"model_ema": trained(head="other"), "model": state},
    "state_dict before its average": lambda state: {
        "ema_state_dict": {key: -value for key, value in state.items()},
        "state_dict": state,
    },
    "settings of the same name": lambda state: {"model": {"depth": 3}, "net": "resnet", "params": state},
}


@pytest.mark.parametrize("saver", TORCH_SAVERS)
@pytest.mark.parametrize("wrapper", WRAPPED)
def test_the_state_dict_is_found_in_its_wrapper(tmp_path, wrapper, saver):
    TORCH_SAVERS[saver](WRAPPED[wrapper](trained()), tmp_path / "weights.pth")
    assert_equal(loaded(tmp_path / "weights.pth"), trained())


def endless() -> dict:
    content: dict[str, Any] = {"epoch": 3}
    content["model"] = content
    return content


@pytest.mark.parametrize(
    ("content", "got"),
    [
        ([1, 2], "list"),
        (torch.zeros(3), "Tensor"),
        ({}, "dict of nothing"),
        ({"epoch": 3, "best\nloss": 0.5}, "dict of epoch, 'best\\nloss'"),
        ({"a": 1, "b": 2, "c": 3, "d": 4, 5: 5}, "dict of a, b, c and 2 more"),
        ({"a": {"b": {"weight": torch.zeros(3)}}}, "dict of a"),
        (endless(), "dict of epoch, model"),
    ],
)
def test_a_file_without_state_dict_says_what_it_holds(tmp_path, content, got):
    torch.save(content, tmp_path / "other.pth")
    message = complaint(tmp_path / "other.pth")
    assert message.startswith(
        "expected tensors by name, at the top level or under state_dict, model_state_dict, model"
    )
    assert message.endswith(f"; got {got}")


def test_words_in_an_npz_are_no_weights(tmp_path):
    arrays: dict[str, Any] = {name: value.numpy() for name, value in trained().items()}
    np.savez(tmp_path / "weights.npz", **arrays, classes=np.array(["cat", "dog"]))
    assert_equal(loaded(tmp_path / "weights.npz"), trained())


# Keys of wrapped and of old models


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors", "weights.npz"])
@pytest.mark.parametrize(
    "prefix",
    [
        "module.",
        "_orig_mod.",
        "model.",
        "net.",
        "backbone.",
        "module._orig_mod.",
        "model.net.",
        "module.module.",
    ],
)
def test_prefixes_of_every_key_are_taken_off(tmp_path, prefix, name):
    SAVERS[name]({f"{prefix}{key}": value for key, value in trained().items()}, tmp_path / name)
    assert_equal(loaded(tmp_path / name), trained())


@pytest.mark.parametrize("inner", ["model", "net", "module", "backbone"])
@pytest.mark.parametrize("prefix", ["", "module.", "model."])
def test_a_prefix_that_the_module_has_itself_stays(tmp_path, inner, prefix):
    module = nn.Module()
    module.add_module(inner, Net())
    state = {f"{inner}.{key}": value for key, value in trained().items()}
    torch.save({f"{prefix}{key}": value for key, value in state.items()}, tmp_path / "weights.pth")
    assert_equal(loaded(tmp_path / "weights.pth", module), state)


def test_a_prefix_of_some_keys_stays(tmp_path):
    state = {f"model.{key}" if key.startswith("head") else key: value for key, value in trained().items()}
    torch.save(state, tmp_path / "weights.pth")
    assert "missing: head.weight (the file has model.head.weight)" in complaint(tmp_path / "weights.pth")


@pytest.mark.parametrize("wrap", [nn.DataParallel, AveragedModel])
def test_wrapped_models_fit_the_plain_one(tmp_path, wrap):
    module = Net()
    module.load_state_dict(trained())
    torch.save(wrap(module).state_dict(), tmp_path / "weights.pth")
    assert_equal(loaded(tmp_path / "weights.pth"), trained())


def test_an_old_file_does_not_count_batches(tmp_path):
    state = trained()
    del state["norm.num_batches_tracked"]
    torch.save(state, tmp_path / "weights.pth")
    module = Net()
    module.norm.num_batches_tracked = torch.tensor(7)
    assert_equal(
        loaded(tmp_path / "weights.pth", module), trained() | {"norm.num_batches_tracked": torch.tensor(7)}
    )


def test_a_count_that_the_module_does_not_keep_is_left_out(tmp_path):
    torch.save(trained(), tmp_path / "weights.pth")
    module = Net()
    module.norm.num_batches_tracked = None
    state = trained()
    del state["norm.num_batches_tracked"]
    assert_equal(loaded(tmp_path / "weights.pth", module), state)
