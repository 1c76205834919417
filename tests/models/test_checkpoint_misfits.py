"""Weights files whose tensors do not fit the module."""

import pytest
import torch
from torch import nn

from tests.models.checkpoints import SAVERS, Net, complaint, trained


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
        "does not fit Net: wrong shape: conv.weight (expected (3, 2, 1, 1), got (5, 2, 1, 1)), "
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
        "weights of a different architecture: the file has 1 of the 8 keys of Net, "
        "and 4 keys that Net does not have"
    )


def test_a_deeper_network_with_the_same_names_is_another_architecture(tmp_path):
    deeper = trained(5) | {f"block.{index}": torch.zeros(3) for index in range(20)}
    torch.save(deeper, tmp_path / "deep.pth")
    assert complaint(tmp_path / "deep.pth").startswith(
        "weights of a different architecture: the file has 8 of the 8 keys"
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


@pytest.mark.parametrize(
    "build", [nn.Linear, lambda inputs, outputs, bias: nn.Conv2d(inputs, outputs, 1, bias=bias)]
)
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
    assert message.startswith("does not fit Sequential: wrong shape: 0.weight (expected (")
