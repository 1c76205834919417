import os
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from memo_tta.errors import CheckpointError, UnknownName
from memo_tta.models.checkpoint import load_weights


def net(width: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width))


def save_npz(state, path):
    np.savez(path, **{name: value.numpy() for name, value in state.items()})


SAVERS = {".npz": save_npz, ".safetensors": save_file, ".pth": torch.save, ".pt": torch.save}


@pytest.mark.parametrize("suffix", SAVERS)
def test_weights_come_back_bit_for_bit(tmp_path, suffix):
    saved, path = net(), tmp_path / f"weights{suffix}"
    SAVERS[suffix](saved.state_dict(), path)
    loaded = net()
    load_weights(loaded, path)
    for name, value in saved.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])


@pytest.mark.parametrize("suffix", SAVERS)
def test_a_truncated_file_is_refused_and_changes_nothing(tmp_path, suffix):
    path, module = tmp_path / f"weights{suffix}", net()
    SAVERS[suffix](net().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-40])
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(CheckpointError, match=f"weights{suffix}: not a whole {suffix} file"):
        load_weights(module, path)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("save", [torch.save, lambda state, path: path.write_bytes(pickle.dumps(state))])
def test_a_payload_does_not_run(tmp_path, save):
    marker = tmp_path / "ran"
    save({"0.weight": Payload(marker)}, tmp_path / "evil.pth")
    with pytest.raises(
        CheckpointError, match=r"evil\.pth: (refused, it holds more than plain weights|not a whole)"
    ):
        load_weights(net(), tmp_path / "evil.pth")
    assert not marker.exists()


def test_a_payload_in_an_npz_does_not_run(tmp_path):
    marker = tmp_path / "ran"
    np.savez(tmp_path / "evil.npz", **{"0.weight": np.array([Payload(marker)], dtype=object)})
    with pytest.raises(CheckpointError, match="not a whole"):
        load_weights(net(), tmp_path / "evil.npz")
    assert not marker.exists()


def test_keys_and_shapes_that_do_not_fit_are_listed(tmp_path):
    state = net(4).state_dict()
    state["extra"] = state.pop("1.bias")
    torch.save(state, tmp_path / "other.pth")
    with pytest.raises(CheckpointError) as error:
        load_weights(net(), tmp_path / "other.pth")
    for part in ("missing: 1.bias", "unexpected: extra", "0.bias (expected (3,), got (4,))", "and 2 more"):
        assert part in str(error.value)


def test_what_is_no_weights_file_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="no such weights file"):
        load_weights(net(), tmp_path / "missing.pth")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnknownName, match=r"unknown weights format '\.txt': choose from \.npz"):
        load_weights(net(), tmp_path / "notes.txt")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match="expected a state dict"):
        load_weights(net(), tmp_path / "list.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(CheckpointError, match=r"text\.pth"):
        load_weights(net(), tmp_path / "text.pth")
