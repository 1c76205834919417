from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from memo_tta.models.networks.cct2 import CCT2
from memo_tta.models.networks.resnet20_bn import ResNet20
from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.training.loop import class_loss
from memo_tta.training.sharded_gradients import SHARD, ShardedModel, shard_threads


def double_batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(n)
    images = torch.from_numpy(rng.standard_normal((n, 3, 16, 16)))
    return images, torch.from_numpy(rng.integers(10, size=n))


@pytest.mark.parametrize("size", [1, SHARD, 2 * SHARD, 2 * SHARD + 5])
def test_gradients_are_those_of_the_mean_over_the_batch(size):
    torch.manual_seed(0)
    model, (images, labels) = ResNet26().double(), double_batch(size)
    with shard_threads() as threads:
        loss, right = ShardedModel(model, size).set_gradients(class_loss, (images, labels), threads)
    shown = [parameter.grad for parameter in model.parameters()]
    logits = model(images)
    expected = F.cross_entropy(logits, labels)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    assert right == int((logits.argmax(1) == labels).sum())
    for gradient, other in zip(shown, wanted, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)


def test_the_same_bits_with_any_number_of_threads():
    torch.manual_seed(0)
    model = ResNet26()
    images, labels = double_batch(3 * SHARD)
    found = []
    for count in (1, 3):
        with ThreadPoolExecutor(count, initializer=lambda: torch.set_num_threads(1)) as threads:
            ShardedModel(model, len(images)).set_gradients(class_loss, (images.float(), labels), threads)
        found.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(one, three) for one, three in zip(*found, strict=True))


def test_torch_has_its_threads_back():
    before = torch.get_num_threads()
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 10)).double()
    with shard_threads() as threads:
        ShardedModel(model, 2).set_gradients(class_loss, double_batch(2), threads)
    assert torch.get_num_threads() == before


def test_batch_norm_sees_one_shard_and_its_running_statistics_are_the_mean_over_shards():
    torch.manual_seed(0)
    model, (images, targets) = ResNet20().double(), double_batch(2 * SHARD + 5)
    with shard_threads() as threads:
        ShardedModel(model, len(images)).set_gradients(class_loss, (images, targets), threads)
    means, variances = [], []
    with torch.no_grad():
        for shard in images.split(SHARD):
            first = model.conv1(shard)
            means.append(0.1 * first.mean(dim=(0, 2, 3)))
            variances.append(0.9 + 0.1 * first.transpose(0, 1).flatten(1).var(dim=1))
    torch.testing.assert_close(model.bn1.running_mean, sum(means) / 3, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(model.bn1.running_var, sum(variances) / 3, rtol=1e-9, atol=1e-12)
    assert model.bn1.num_batches_tracked == 1


@pytest.mark.parametrize("network", [ResNet20, CCT2])
def test_weights_and_statistics_are_the_same_bits_with_any_number_of_threads(network):
    states = []
    for count in (1, 3):
        torch.manual_seed(0)
        model, size = network(), 3 * SHARD
        rng = np.random.default_rng(0)
        images = torch.from_numpy(rng.standard_normal((size, 3, 32, 32))).float()
        targets = torch.from_numpy(rng.integers(10, size=size))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        sharded = ShardedModel(model, size)
        with ThreadPoolExecutor(count, initializer=lambda: torch.set_num_threads(1)) as threads:
            for _ in range(2):
                sharded.set_gradients(class_loss, (images, targets), threads)
                optimizer.step()
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
