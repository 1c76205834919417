"""Restorations against scipy and closed forms, on degraded and on clean images."""

import math

import numpy as np
import pytest
import torch
from scipy import fft, ndimage

from memo_tta.data.sample_images import load_sample
from memo_tta.views.deblocking import deblock
from memo_tta.views.directional_blur import deblur_by_direction
from memo_tta.views.displaced_pixels import undisplace
from memo_tta.views.haze import stretch_colours
from memo_tta.views.pixelation import depixelate
from memo_tta.views.restoration import (
    MAX_NOISE,
    MAX_SPECK,
    MIN_CONTRAST,
    RESTORATIONS,
    THRESHOLD,
    blur_width,
    deblur,
    denoise,
    despeckle,
    noise_variance,
    restore,
    stretch,
)
from memo_tta.views.restored_views import to_float

SAMPLE = [to_float(sample.image) for sample in load_sample()]
X = SAMPLE[3]


def noisy(x, sigma, seed=0):
    return x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))


def peppered(x, share, seed=0):
    rng = np.random.default_rng(seed)
    spots = torch.from_numpy(rng.random(x.shape) < share)
    return torch.where(spots, torch.from_numpy(rng.integers(0, 2, x.shape)).float(), x)


def blurred(x, sigma):
    channels = [ndimage.gaussian_filter(channel, sigma, mode="mirror") for channel in x.double().numpy()]
    return torch.from_numpy(np.stack(channels)).float()


def distance(a, b):
    return float((a - b).square().mean())


def test_specks_are_found_pixel_by_pixel():
    x = peppered(X, 0.05)
    wanted = x.numpy().copy()
    padded = np.pad(x.numpy(), ((0, 0), (1, 1), (1, 1)), mode="edge")
    for channel, row, column in np.ndindex(*x.shape):
        near = np.delete(padded[channel, row : row + 3, column : column + 3].ravel(), 4)
        if np.sort(np.abs(near - wanted[channel, row, column]))[:4].mean() > MAX_SPECK:
            wanted[channel, row, column] = np.sort(near)[3]  # of eight, the lower middle one
    assert np.array_equal(despeckle(x), wanted)
    assert distance(despeckle(x), X) < distance(x, X) / 5


@pytest.mark.parametrize("shape", [(12, 15), (9, 130)])
def test_denoising_square_by_square(shape):
    x = noisy(torch.rand(3, 1, 1).expand(3, *shape), 0.1).double()
    colours = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
    planes = np.pad(np.tensordot(colours, x.numpy(), 1), ((0, 0), (7, 7), (7, 7)), mode="reflect")
    total, weights = np.zeros_like(planes), np.zeros_like(planes)
    limit = THRESHOLD * math.sqrt(noise_variance(x) - MAX_NOISE**2)
    step = 1 if max(shape) < 100 else 2
    for channel in range(3):
        for top in range(0, planes.shape[1] - 7, step):
            for left in range(0, planes.shape[2] - 7, step):
                at = channel, slice(top, top + 8), slice(left, left + 8)
                found = np.asarray(fft.dctn(planes[at], norm="ortho"))
                kept = (np.abs(found) > limit) | (np.arange(64).reshape(8, 8) == 0)
                total[at] += fft.idctn(found * kept, norm="ortho") / kept.sum()
                weights[at] += 1 / kept.sum()
    inside = (slice(None), slice(7, -7), slice(7, -7))
    wanted = np.tensordot(colours.T, total[inside] / weights[inside], 1)
    np.testing.assert_allclose(denoise(x), wanted, rtol=0, atol=1e-6)  # weights are float32


@pytest.mark.parametrize("sigma", [0.05, 0.1])
def test_less_noise_than_before(sigma):
    shown = [(noisy(x, sigma).clamp(0, 1), x) for x in SAMPLE[:20]]
    before, after = (sum(distance(f(y), x) for y, x in shown) for f in (lambda y: y, denoise))
    assert after < 0.35 * before


def test_the_variance_of_noise_is_found():
    ramp = torch.linspace(0, 1, 64).expand(3, 64, 64)
    assert noise_variance(noisy(ramp, 0.07)) == pytest.approx(0.07**2, rel=0.1)


@pytest.mark.parametrize("sigma", [0.8, 1.0, 1.2, 1.5])
def test_the_width_of_a_blur_is_found(sigma):
    assert np.median([blur_width(blurred(x, sigma)) for x in SAMPLE[:60]]) == pytest.approx(sigma, rel=0.15)


def test_deblurring_undoes_a_blur():
    for sigma in (0.8, 1.2):
        shown = [(blurred(x, sigma), x) for x in SAMPLE[:20]]
        before, after = (sum(distance(f(y), x) for y, x in shown) for f in (lambda y: y, deblur))
        assert after < 0.5 * before
    flat = torch.full((3, 16, 16), 0.3)
    assert torch.equal(deblur(flat), flat)


def test_low_contrast_is_stretched_alike_in_all_colours():
    y = stretch(0.5 + 0.1 * (X - 0.5))
    dark, bright = np.percentile(y.numpy(), [1, 99])
    assert bright - dark == pytest.approx(MIN_CONTRAST, abs=0.01)
    squeezed = (X - X.mean()) / X.std()
    torch.testing.assert_close((y - y.mean()) / y.std(), squeezed, atol=1e-3, rtol=0)
    hazy = stretch(0.8 + 0.1 * X)
    assert np.percentile(hazy.numpy(), 99) == pytest.approx(1, abs=0.01)  # no further than white
    flat = torch.full((3, 8, 8), 0.3)
    assert torch.equal(stretch(flat), flat)


@pytest.mark.parametrize("side", [32, 65])
def test_one_restoration_after_the_other(side):
    chain = [despeckle, denoise, deblur, stretch]
    if side <= 64:
        chain = [depixelate, deblock, despeckle, denoise, undisplace, deblur_by_direction]
        chain += [stretch_colours, stretch]
    x = X.repeat(1, 3, 3)[:, :side, :side]
    for shown in (peppered(x, 0.05), noisy(x, 0.1).clamp(0, 1), blurred(x, 1.5), 0.4 + 0.2 * x):
        wanted = shown
        for one in chain:
            wanted = one(wanted).clamp(0, 1)
        assert torch.equal(restore(shown), wanted) and not torch.equal(wanted, shown)


@pytest.mark.parametrize("name", RESTORATIONS)
def test_photographs_that_show_nothing_of_the_kind_come_back_as_they_are(name):
    assert np.mean([torch.equal(RESTORATIONS[name](x), x) for x in SAMPLE]) > 0.6


@pytest.mark.parametrize("name", RESTORATIONS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 40), (64, 48), (7, 900)])
def test_any_size_of_image(name, shape):
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    for shown in (x, 0.5 + 0.1 * x):
        y = RESTORATIONS[name](shown)
        assert y.shape == x.shape and y.isfinite().all()


@pytest.mark.parametrize("beside", [(0, 1), (1, 0), (1, 2), (2, 1)])
def test_a_speck_may_differ_much_from_one_pixel_beside_it_only(beside):
    """Three pixels beside it differ by 0.25, the others by 0.5: the four nearest by 0.3125 on average."""
    patch = np.full((3, 3), 0.9, np.float32)
    for position in [(0, 1), (1, 0), (1, 2), (2, 1)]:
        patch[position] = 0.9 if position == beside else 0.65
    patch[1, 1] = 0.4
    x = torch.full((3, 7, 7), 0.9)
    x[:, 2:5, 2:5] = torch.from_numpy(patch)
    found = despeckle(x)
    assert (found[:, 3, 3] == 0.9).all()  # the median of five pixels of 0.9 and three of 0.65
    x[:, 3, 3] = 0.46  # now by 0.2525 on average
    assert (despeckle(x)[:, 3, 3] == 0.46).all()
