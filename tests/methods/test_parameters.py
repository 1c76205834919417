"""Which parameters a choice means, and that the network before them is neither kept nor differentiated."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError
from memo_tta.methods.parameters import blocks, choose_parameters
from memo_tta.models.zoo import ZOO
from tests.nets import build_classifier, everything, pictures

LAST = {
    "resnet26": ["layer3.3", "bn", "fc"],
    "resnet50": ["layer3.5", "layer4.0", "layer4.1", "layer4.2", "fc"],
    "efficientnet_lite0": ["_blocks.15", "_conv_head", "_bn1", "_fc"],
    "rvt_small_plus": ["transformers.0.blocks.11", "norm", "head"],
    "cct2": ["layers.1", "norm", "pool", "fc"],
}


@pytest.mark.parametrize("method", ["memo", "tent-all"])
def test_only_what_is_trainable_is_adapted(method):
    """Adapters beside a frozen network, as of LoRA."""
    classifier = build_classifier("group-norm")
    module, seen = classifier.module, []
    for name, parameter in module.named_parameters():
        parameter.requires_grad = name.startswith("7.")  # the head
    module.register_forward_pre_hook(
        lambda module, _: seen.append({key: p.detach().clone() for key, p in module.named_parameters()})
    )
    source = {key: p.detach().clone() for key, p in module.named_parameters()}
    few = {"n_views": 4} if method == "memo" else {"online": False, "batch_size": 1}
    prediction = mt.method(method, classifier, params="trainable", lr=0.1, **few).predict(pictures(1)[0])
    assert prediction.adapted
    changed = {key for state in seen for key in state if not torch.equal(state[key], source[key])}
    assert changed == {"7.weight", "7.bias"}
    assert [name for name, p in module.named_parameters() if p.requires_grad] == ["7.weight", "7.bias"]
    everything_changed = mt.Memo(classifier, n_views=4, lr=0.1)
    assert len(everything_changed.parameters) == len(source)


def test_nothing_trainable_is_an_error():
    module = build_classifier("group-norm").module.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"params: 'trainable' matches none of the .* parameters"):
        choose_parameters(module, "trainable")


def names_of(module: nn.Module) -> list[str]:
    names = {id(part): name for name, part in module.named_modules()}
    return [names[id(block)] for block in blocks(module)]


@pytest.mark.parametrize("name", ZOO)
def test_blocks_are_disjoint_in_order_and_hold_nearly_all_parameters(name):
    with torch.device("meta"):
        module = ZOO[name].build(10)
    found = blocks(module)
    held = sum(p.numel() for block in found for p in block.parameters())
    assert 0.95 < held / sum(p.numel() for p in module.parameters()) <= 1
    assert len(found) >= 4
    order = [name for name, _ in module.named_modules()]
    positions = [order.index(name) for name in names_of(module)]
    assert all(before < after for before, after in pairwise(positions))


@pytest.mark.parametrize("name", LAST)
def test_the_last_blocks_are_found_in_a_wrapper_too(name):
    with torch.device("meta"):
        module = ZOO[name].build(10)
    assert names_of(module)[-len(LAST[name]) :] == LAST[name]
    assert blocks(nn.Sequential(nn.Identity(), module)) == blocks(module)


def test_a_stage_of_one_block_is_one_block():
    block = nn.ModuleDict({"conv": nn.Conv2d(3, 3, 1), "norm": nn.BatchNorm2d(3)})
    stages = nn.Sequential(nn.Sequential(block), nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 8, 3)))
    module = nn.ModuleDict({"stages": stages, "head": nn.Linear(8, 2)})
    assert [type(part).__name__ for part in blocks(module)] == ["ModuleDict", "Conv2d", "Conv2d", "Linear"]


def test_the_last_blocks_are_chosen():
    module = build_classifier("batch-norm").module
    found = blocks(module)
    for count in range(1, len(found) + 1):
        wanted = [p for block in found[-count:] for p in block.parameters()]
        assert {id(p) for p in choose_parameters(module, f"last:{count}")} == {id(p) for p in wanted}
    everything_chosen = {id(p) for p in choose_parameters(module, f"last:{len(found) + 90}")}
    assert everything_chosen == {id(p) for p in choose_parameters(module, "all")}


def test_nothing_before_the_last_blocks_is_recorded():
    classifier, recorded = build_classifier("batch-norm"), list[bool]()
    found = blocks(classifier.module)
    for block in found:
        block.register_forward_hook(lambda _module, _inputs, output: recorded.append(output.requires_grad))
    before = everything(classifier.module)
    prediction = mt.Memo(classifier, n_views=4, lr=0.5, params="last:1").predict(pictures(1)[0])
    assert recorded[: len(found)] == [False] * (len(found) - 1) + [True]  # the views come first
    assert prediction.adapted and not torch.equal(prediction.logits, prediction.source.logits)
    assert everything(classifier.module) == before
