"""Weights files that cannot be read, or would run code."""

import argparse
import os
import pickle
import re
import tarfile
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.models.checkpoints import (
    SAVERS,
    TORCH_SAVERS,
    complaint,
    save_legacy,
    trained,
)

# Files that cannot be read


@pytest.mark.parametrize("name", SAVERS)
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(tmp_path, name, part):
    SAVERS[name](trained(), tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * part)])
    suffix = (tmp_path / name).suffix
    assert re.fullmatch(rf"is damaged, or not a \{suffix} file \([^.]+\.?\)", complaint(tmp_path / name))


@pytest.mark.parametrize("name", SAVERS)
def test_what_is_no_weights_file_says_so(tmp_path, name):
    path = tmp_path / name
    assert complaint(path) == "no such weights file"
    path.write_bytes(b"")
    assert complaint(path) == "the file is empty"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
    begins = "it begins with 'version https://git-lfs.github.com/spec/'"
    assert complaint(path) == f"is a text file, expected weights ({begins})"
    path.write_text("hello\n")
    assert complaint(path) == "is a text file, expected weights (it begins with 'hello')"
    path.write_bytes(bytes(range(128, 256)) * 4)
    assert complaint(path).startswith(f"is damaged, or not a {path.suffix} file (")
    path.unlink()
    path.mkdir()
    assert complaint(path) == "is a directory, expected a weights file"


def test_a_name_that_the_system_refuses_is_no_traceback(tmp_path):
    assert complaint(tmp_path / f"{'x' * 300}.pth").startswith("cannot be read (")


@pytest.mark.parametrize("name", ["notes.txt", "weights", "weights.safetensor", "weights.npy"])
def test_an_unknown_suffix_lists_the_known_ones(tmp_path, name):
    (tmp_path / name).write_text("hello")
    message = complaint(tmp_path / name)
    suffix = (tmp_path / name).suffix
    assert message.startswith(f"unknown weights format {suffix!r}: choose from ")
    for known in (".npz", ".safetensors", ".pth", ".pt", ".bin", ".tar"):
        assert known in message


# Files that would run code


class Payload:
    """Makes a directory when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def pickled(content, path):
    path.write_bytes(pickle.dumps(content, protocol=2))


ADVICE = "where it was made, save only the tensors with torch.save(model.state_dict(), PATH)"


@pytest.mark.parametrize("save", [torch.save, save_legacy, pickled])
@pytest.mark.parametrize("name", ["evil.pth", "evil.pt", "evil.bin", "evil.pth.tar"])
def test_a_payload_does_not_run(tmp_path, monkeypatch, save, name):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    marker = tmp_path / "ran"
    save({"epoch": Payload(marker)}, tmp_path / name)
    asked = f"GLOBAL {os.mkdir.__module__}.mkdir"
    message = complaint(tmp_path / name)
    assert message == f"refused, because it holds more than plain weights ({asked}): {ADVICE}"
    assert not marker.exists()
    if save is not pickled:  # the same file does run it where it is read as code
        torch.load(tmp_path / name, weights_only=False)
        assert marker.exists()


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [(0, "is a text file, "), (4, "is damaged, "), (pickle.HIGHEST_PROTOCOL, "is damaged, ")],
)
def test_a_pickle_of_another_protocol_does_not_run(tmp_path, protocol, expected):
    marker = tmp_path / "ran"
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"epoch": Payload(marker)}, protocol=protocol))
    message = complaint(tmp_path / "evil.pth")
    assert message.startswith(expected) and "Detected pickle protocol" not in message
    assert not marker.exists()


def test_a_payload_in_an_npz_does_not_run(tmp_path):
    marker = tmp_path / "ran"
    arrays: dict[str, Any] = {"head.weight": np.array([Payload(marker)], dtype=object)}
    np.savez(tmp_path / "evil.npz", **arrays)
    assert complaint(tmp_path / "evil.npz").startswith(
        "refused, because it holds more than plain weights (Python objects)"
    )
    pickled(Payload(marker), tmp_path / "evil.npz")
    assert complaint(tmp_path / "evil.npz") == "is damaged, or not a .npz file (not a complete zip archive)"
    assert not marker.exists()


@pytest.mark.parametrize("saver", TORCH_SAVERS)
@pytest.mark.parametrize(
    ("content", "asked"),
    [
        (nn.Sequential(nn.Linear(2, 2)), "torch.nn.modules.container.Sequential"),
        ({"model": nn.Linear(2, 2)}, "torch.nn.modules.linear.Linear"),
        ({"args": argparse.Namespace(lr=0.1), "model": trained()}, "argparse.Namespace"),
    ],
)
def test_code_in_a_checkpoint_is_named(tmp_path, content, asked, saver):
    TORCH_SAVERS[saver](content, tmp_path / "whole.pth")
    message = complaint(tmp_path / "whole.pth")
    assert message == f"refused, because it holds more than plain weights (GLOBAL {asked}): {ADVICE}"


def test_a_script_archive_and_a_tar_archive_are_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(nn.Linear(2, 2)).save(tmp_path / "script.pt")
    assert "more than plain weights (TorchScript archive)" in complaint(tmp_path / "script.pt")
    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        archive.add(tmp_path / "script.pt", "script.pt")
    assert "more than plain weights (legacy .tar format)" in complaint(tmp_path / "archive.tar")


@pytest.mark.parametrize(
    ("strange", "message"),
    [
        (torch.zeros(4).to_sparse(), "expected a dense tensor, got one of layout sparse_coo: save it as "),
        (
            torch.zeros(4, device="meta"),
            "expected values, got a tensor on the meta device: save the weights ",
        ),
    ],
)
def test_a_tensor_without_plain_values_changes_nothing(tmp_path, strange, message):
    torch.save(trained() | {"head.bias": strange}, tmp_path / "weights.pth")
    assert complaint(tmp_path / "weights.pth").startswith(f"head.bias: {message}")
