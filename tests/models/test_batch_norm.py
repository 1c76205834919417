from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from memo_tta.models.batch_norm import mixed_statistics, statistics_layers

CASES = ["n1_6x6", "n8_4x4", "n1_1x2"]


def published_layer(vectors) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(5)
    layer.load_state_dict(
        {name: torch.from_numpy(vectors[name]) for name in ("weight", "bias", "running_mean", "running_var")},
        strict=False,
    )
    return layer.eval()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("prior", [1, 16])
def test_output_and_gradients_are_the_published_ones(golden, case, prior):
    vectors = golden.arrays("bn_single_point")
    layer = published_layer(vectors)
    x = torch.from_numpy(vectors[f"{case}__x"]).requires_grad_()
    with mixed_statistics(layer, prior):
        y = layer(x)
    cotangent = torch.from_numpy(vectors[f"{case}__cotangent"])
    gradients = torch.autograd.grad((y * cotangent).sum(), (x, layer.weight, layer.bias))
    key = f"{case}__N{prior}"
    np.testing.assert_allclose(y.detach().numpy(), vectors[f"{key}__y"], rtol=1e-5, atol=1e-6)
    for gradient, name in zip(gradients, ("gx", "gw", "gb"), strict=True):
        np.testing.assert_allclose(gradient.numpy(), vectors[f"{key}__{name}"], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(layer(x).detach().numpy(), vectors[f"{case}__y_plain_eval"])


LAYERS = {
    "1d": (nn.BatchNorm1d, (6, 4, 9)),
    "1d without length": (nn.BatchNorm1d, (6, 4)),
    "2d": (nn.BatchNorm2d, (3, 4, 5, 6)),
    "3d": (nn.BatchNorm3d, (2, 4, 3, 4, 5)),
    "sync": (nn.SyncBatchNorm, (3, 4, 5, 6)),
}


def random_layer(kind) -> tuple[Any, torch.Tensor]:
    build, shape = LAYERS[kind]
    generator = torch.Generator().manual_seed(0)
    layer = build(4).eval()
    layer.running_mean.normal_(generator=generator)
    layer.running_var.uniform_(0.5, 2, generator=generator)
    return layer, torch.randn(shape, generator=generator)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(("prior", "points"), [(16, 1), (256, 100), (3, 7)])
def test_every_kind_of_layer_mixes_by_the_formula(kind, prior, points):
    layer, x = random_layer(kind)
    with torch.no_grad(), mixed_statistics(layer, prior, points):
        y = layer(x)
    flat = x.transpose(0, 1).reshape(4, -1).double().numpy()
    share = prior / (prior + points)
    mean = share * layer.running_mean.numpy() + (1 - share) * flat.mean(axis=1)
    var = share * layer.running_var.numpy() + (1 - share) * flat.var(axis=1, ddof=1)
    shape = (1, 4, *[1] * (x.ndim - 2))
    expected = (x.numpy() - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-5)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
def test_prior_strength_0_is_training_normalisation_without_touching_the_buffers(kind):
    layer, x = random_layer(kind)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    with mixed_statistics(layer, 0):
        y = layer(x.requires_grad_())
    trained = nn.functional.batch_norm(x, None, None, layer.weight, layer.bias, training=True)
    torch.testing.assert_close(y, trained)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    ours, theirs = (torch.autograd.grad((out * weights).sum(), x)[0] for out in (y, trained))
    torch.testing.assert_close(ours, theirs)
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("prior", [0, 16])
def test_one_value_per_channel_keeps_the_running_statistics(prior):
    layer, _ = random_layer("1d")
    x = torch.randn(1, 4)
    with mixed_statistics(layer, prior):
        mixed = layer(x)
    assert torch.equal(mixed, layer(x))


def test_statistics_of_one_batch_can_be_kept_for_the_next():
    layer, x = random_layer("2d")
    other = torch.randn(7, 4, 5, 6)
    with torch.no_grad(), mixed_statistics(layer, 16) as mixing:
        free = layer(other)
        mixing.fix(lambda: layer(x))
        kept = layer(other)
        chunks = torch.cat([layer(other[:3]), layer(other[3:])])
        mixing.release()
        again = layer(other)
    assert torch.equal(chunks, kept)
    assert not torch.allclose(kept, free) and torch.equal(free, again)


def test_layers_without_running_statistics_are_left_alone():
    net = nn.Sequential(
        nn.GroupNorm(2, 4),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.InstanceNorm2d(4),
        nn.InstanceNorm2d(4, track_running_stats=True),
    )
    assert statistics_layers(net) == [net[3]]


class Renamed(nn.BatchNorm2d):
    pass


Renamed.__name__ = "MyBN"


class FrozenNorm(nn.Module):
    """A norm layer without a base class in torch, as some libraries have."""

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(4))
        self.register_buffer("running_var", torch.ones(4))

    def forward(self, x):
        return nn.functional.batch_norm(x, self.running_mean, self.running_var)


def test_layers_are_known_by_their_name_or_a_bases():
    net = nn.Sequential(Renamed(4), FrozenNorm())
    assert statistics_layers(net) == list(net)
    _, x = random_layer("2d")
    with mixed_statistics(net[1], 0):
        mixed = net[1](x)
    expected = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(mixed, expected, rtol=1e-4, atol=1e-5)


def test_a_module_that_keeps_statistics_of_something_else_is_left_alone():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("running_mean", torch.zeros(4))
            self.register_buffer("running_var", torch.ones(4))

    assert statistics_layers(Block()) == []


def test_off_means_off():
    layer, x = random_layer("2d")
    plain = layer(x)
    with mixed_statistics(layer, None):
        assert torch.equal(layer(x), plain)
    with mixed_statistics(layer, 16):
        assert not torch.allclose(layer(x), plain)
