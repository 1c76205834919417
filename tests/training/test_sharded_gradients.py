from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.training.loop import class_loss
from memo_tta.training.sharded_gradients import SHARD, set_gradients, shard_threads


def double_batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(n)
    images = torch.from_numpy(rng.standard_normal((n, 3, 16, 16)))
    return images, torch.from_numpy(rng.integers(10, size=n))


@pytest.mark.parametrize("size", [1, SHARD, 2 * SHARD, 2 * SHARD + 5])
def test_gradients_are_those_of_the_mean_over_the_batch(size):
    torch.manual_seed(0)
    model, (images, labels) = ResNet26().double(), double_batch(size)
    with shard_threads() as threads:
        loss, right = set_gradients(model, class_loss, (images, labels), threads)
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
            set_gradients(model, class_loss, (images.float(), labels), threads)
        found.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(one, three) for one, three in zip(*found, strict=True))


def test_torch_has_its_threads_back():
    before = torch.get_num_threads()
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 10)).double()
    with shard_threads() as threads:
        set_gradients(model, class_loss, double_batch(2), threads)
    assert torch.get_num_threads() == before
