import argparse
import itertools
import os
import pickle
import re
import tarfile
import warnings
from collections import OrderedDict

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from memo_tta.errors import CheckpointError
from memo_tta.models.checkpoint import load_weights


class Net(nn.Module):
    """A body, a norm and a head, with the kinds of keys that classifiers have."""

    def __init__(self, width: int = 3, classes: int = 4, head: str = "head"):
        super().__init__()
        self.conv = nn.Conv2d(2, width, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.add_module(head, nn.Linear(width, classes))


def trained(*sizes, **names) -> dict[str, torch.Tensor]:
    """A state dict of small whole numbers, none of them one that a fresh network has."""
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
    """The message of a file that must be refused in one line, and leave the module as it was."""
    module = module or Net()
    before = copied(module)
    with pytest.raises(CheckpointError) as error:
        load_weights(module, path)
    assert_equal(module.state_dict(), before)
    message = str(error.value)
    assert message.startswith(f"{path}: ") and message.isprintable()
    return message.removeprefix(f"{path}: ")


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
    content = {"epoch": 3}
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
        "expected tensors by name, at the top or under state_dict, model_state_dict, model"
    )
    assert message.endswith(f"; got {got}")


def test_words_in_an_npz_are_no_weights(tmp_path):
    arrays = {name: value.numpy() for name, value in trained().items()}
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
    module.norm.num_batches_tracked += 7
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


# Files that cannot be read


@pytest.mark.parametrize("name", SAVERS)
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(tmp_path, name, part):
    SAVERS[name](trained(), tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * part)])
    suffix = (tmp_path / name).suffix
    assert re.fullmatch(rf"damaged, or not a \{suffix} file \([^.]+\.?\)", complaint(tmp_path / name))


@pytest.mark.parametrize("name", SAVERS)
def test_what_is_no_weights_file_says_so(tmp_path, name):
    path = tmp_path / name
    assert complaint(path) == "no such weights file"
    path.write_bytes(b"")
    assert complaint(path) == "an empty file"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
    begins = "it begins with 'version https://git-lfs.github.com/spec/'"
    assert complaint(path) == f"a text file, expected weights ({begins})"
    path.write_text("hello\n")
    assert complaint(path) == "a text file, expected weights (it begins with 'hello')"
    path.write_bytes(bytes(range(128, 256)) * 4)
    assert complaint(path).startswith(f"damaged, or not a {path.suffix} file (")
    path.unlink()
    path.mkdir()
    assert complaint(path) == "a directory, expected a weights file"


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


ADVICE = "save the tensors alone where it was made: torch.save(model.state_dict(), PATH)"


@pytest.mark.parametrize("save", [torch.save, save_legacy, pickled])
@pytest.mark.parametrize("name", ["evil.pth", "evil.pt", "evil.bin", "evil.pth.tar"])
def test_a_payload_does_not_run(tmp_path, monkeypatch, save, name):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    marker = tmp_path / "ran"
    save({"epoch": Payload(marker)}, tmp_path / name)
    asked = f"GLOBAL {os.mkdir.__module__}.mkdir"
    message = complaint(tmp_path / name)
    assert message == f"refused, it holds more than plain weights ({asked}); {ADVICE}"
    assert not marker.exists()
    if save is not pickled:  # the same file does run it where it is read as code
        torch.load(tmp_path / name, weights_only=False)
        assert marker.exists()


@pytest.mark.parametrize(
    ("protocol", "expected"), [(0, "a text file, "), (4, "damaged, "), (pickle.HIGHEST_PROTOCOL, "damaged, ")]
)
def test_a_pickle_of_another_protocol_does_not_run(tmp_path, protocol, expected):
    marker = tmp_path / "ran"
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"epoch": Payload(marker)}, protocol=protocol))
    message = complaint(tmp_path / "evil.pth")
    assert message.startswith(expected) and "Detected pickle protocol" not in message
    assert not marker.exists()


def test_a_payload_in_an_npz_does_not_run(tmp_path):
    marker = tmp_path / "ran"
    np.savez(tmp_path / "evil.npz", **{"head.weight": np.array([Payload(marker)], dtype=object)})
    assert complaint(tmp_path / "evil.npz").startswith(
        "refused, it holds more than plain weights (Object arrays)"
    )
    pickled(Payload(marker), tmp_path / "evil.npz")
    assert complaint(tmp_path / "evil.npz") == "damaged, or not a .npz file (no whole zip archive)"
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
    assert message == f"refused, it holds more than plain weights (GLOBAL {asked}); {ADVICE}"


def test_a_script_archive_and_a_tar_archive_are_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(nn.Linear(2, 2)).save(tmp_path / "script.pt")
    assert "more than plain weights (TorchScript archive)" in complaint(tmp_path / "script.pt")
    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        archive.add(tmp_path / "script.pt", "script.pt")
    assert "more than plain weights (legacy .tar format)" in complaint(tmp_path / "archive.tar")


@pytest.mark.parametrize("strange", [torch.zeros(4).to_sparse(), torch.zeros(4, device="meta")])
def test_a_tensor_without_plain_values_changes_nothing(tmp_path, strange):
    torch.save(trained() | {"head.bias": strange}, tmp_path / "weights.pth")
    assert complaint(tmp_path / "weights.pth").startswith("holds tensors without plain values (")


# Tensors that do not fit


def test_missing_and_unexpected_keys_come_with_the_likely_other_name(tmp_path):
    torch.save(trained(head="fc"), tmp_path / "other.pth")
    assert complaint(tmp_path / "other.pth") == (
        "does not fit Net: missing: head.weight (the file has fc.weight), head.bias (the file has fc.bias); "
        "unexpected: fc.weight, fc.bias"
    )


def test_a_key_of_another_shape_is_no_likely_name(tmp_path):
    torch.save(trained(3, 5, head="heads"), tmp_path / "other.pth")
    assert complaint(tmp_path / "other.pth") == (
        "does not fit Net: missing: head.weight, head.bias; unexpected: heads.weight, heads.bias"
    )


def test_a_missing_key_alone_is_listed(tmp_path):
    state = trained()
    del state["head.bias"]
    torch.save(state, tmp_path / "other.pth")
    assert complaint(tmp_path / "other.pth") == "does not fit Net: missing: head.bias"


def test_a_key_of_strange_characters_stays_in_the_line(tmp_path):
    torch.save(trained() | {"head\x1b[2J\nsecret": torch.zeros(3)}, tmp_path / "other.pth")
    assert complaint(tmp_path / "other.pth") == r"does not fit Net: unexpected: 'head\x1b[2J\nsecret'"


def test_long_lists_are_cut(tmp_path):
    torch.save(trained(5), tmp_path / "wide.pth")
    assert complaint(tmp_path / "wide.pth") == (
        "does not fit Net: of another shape: conv.weight (expected (3, 2, 1, 1), got (5, 2, 1, 1)), "
        "norm.weight (expected (3,), got (5,)), norm.bias (expected (3,), got (5,)) and 3 more"
    )
    torch.save(trained() | {f"extra.{index}": torch.zeros(3) for index in range(5)}, tmp_path / "more.pth")
    assert complaint(tmp_path / "more.pth") == (
        "does not fit Net: unexpected: extra.0, extra.1, extra.2 and 2 more"
    )


def test_another_architecture_says_how_little_fits(tmp_path):
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).state_dict()
    torch.save(other | {"head.bias": torch.zeros(4)}, tmp_path / "other.pth")
    assert complaint(tmp_path / "other.pth") == (
        "weights of another architecture: it has 1 of the 8 keys of Net, and 4 that Net does not have"
    )


def test_a_deeper_network_with_the_same_names_is_another_architecture(tmp_path):
    deeper = trained(5) | {f"block.{index}": torch.zeros(3) for index in range(20)}
    torch.save(deeper, tmp_path / "deep.pth")
    assert complaint(tmp_path / "deep.pth").startswith(
        "weights of another architecture: it has 8 of the 8 keys"
    )


def test_a_file_that_holds_the_module_and_much_more_lists_the_rest(tmp_path):
    more = trained() | {f"decoder.{index}": torch.zeros(3) for index in range(20)}
    torch.save(more, tmp_path / "more.pth")
    assert complaint(tmp_path / "more.pth") == (
        "does not fit Net: unexpected: decoder.0, decoder.1, decoder.2 and 17 more"
    )


# A head of another size


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors", "weights.npz"])
def test_a_head_of_another_size_names_both(tmp_path, name, prefix):
    SAVERS[name]({f"{prefix}{key}": value for key, value in trained(3, 10).items()}, tmp_path / name)
    message = "the file's head has 10 classes, the model 1000: pass num_classes=10"
    assert complaint(tmp_path / name, Net(3, 1000)) == message


@pytest.mark.parametrize("build", [nn.Linear, lambda *sizes, bias=True: nn.Conv2d(*sizes, 1, bias=bias)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_head_without_bias_or_of_convolutions_is_a_head(tmp_path, build, bias):
    torch.save(build(3, 2, bias=bias).state_dict(), tmp_path / "head.pth")
    message = "the file's head has 2 classes, the model 5: pass num_classes=2"
    assert complaint(tmp_path / "head.pth", build(3, 5, bias=bias)) == message


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ((nn.Embedding(6, 3), nn.Linear(3, 2)), (nn.Embedding(5, 3), nn.Linear(3, 2))),
        ((nn.Linear(4, 2),), (nn.Linear(3, 5),)),
        ((nn.Linear(3, 2), nn.Linear(3, 2)), (nn.Linear(3, 5), nn.Linear(3, 5))),
        ((nn.Linear(3, 2, bias=False), nn.PReLU(2)), (nn.Linear(3, 5, bias=False), nn.PReLU(5))),
    ],
    ids=["embeddings", "inputs", "two heads", "two layers"],
)
def test_other_shapes_are_no_head(tmp_path, there, here):
    torch.save(nn.Sequential(*there).state_dict(), tmp_path / "other.pth")
    message = complaint(tmp_path / "other.pth", nn.Sequential(*here))
    assert message.startswith("does not fit Sequential: of another shape: 0.weight (expected (")
