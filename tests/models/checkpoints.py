"""Helpers that write, load and check weights files of a small network."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from memo_tta.errors import CheckpointError
from memo_tta.models.checkpoint import load_weights


class Net(nn.Module):
    """A convolution, a norm and a head, with the kinds of keys that classifiers have."""

    def __init__(self, width: int = 3, classes: int = 4, head: str = "head"):
        super().__init__()
        self.conv = nn.Conv2d(2, width, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.add_module(head, nn.Linear(width, classes))


def trained(*sizes, **names) -> dict[str, torch.Tensor]:
    """Return a state dict of small integers that no newly built network has."""
    state = Net(*sizes, **names).state_dict()
    return OrderedDict(
        (key, torch.arange(2, 2 + value.numel(), dtype=value.dtype).view_as(value))
        for key, value in state.items()
    )


def save_npz(state, path):
    np.savez(path, **{name: value.numpy() for name, value in state.items()})


def save_legacy(content, path):
    torch.save(content, path, _use_new_zipfile_serialization=False)


SAVERS = {
    "weights.npz": save_npz,
    "weights.safetensors": save_file,
    "WEIGHTS.SAFETENSORS": save_file,
    **dict.fromkeys(("weights.pth", "weights.pt", "weights.bin", "weights.pth.tar"), torch.save),
    **dict.fromkeys(("legacy.pth", "legacy.pth.tar"), save_legacy),
}
TORCH_SAVERS = {"zip": torch.save, "legacy": save_legacy}


def copied(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_equal(state, expected):
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        assert state[name].dtype == value.dtype and torch.equal(state[name], value), name


def loaded(path, module: nn.Module | None = None) -> dict[str, torch.Tensor]:
    module = module or Net()
    load_weights(module, path)
    return module.state_dict()


def complaint(path, module: nn.Module | None = None) -> str:
    """Return the one-line message that refuses a file; check that the module is unchanged."""
    module = module or Net()
    before = copied(module)
    with pytest.raises(CheckpointError) as error:
        load_weights(module, path)
    assert_equal(module.state_dict(), before)
    message = str(error.value)
    assert message.startswith(f"{path}: ") and message.isprintable()
    return message.removeprefix(f"{path}: ")
