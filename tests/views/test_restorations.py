"""Restorations against scipy, and views of them against their parts."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage, signal, stats

from memo_tta.data.sample_images import load_sample
from memo_tta.errors import UnknownName
from memo_tta.views.plan import plan_padded_crops
from memo_tta.views.restorations import RESTORATIONS, blur, deblur, noise_variance
from memo_tta.views.restore import Restore

IMAGE = load_sample()[3].image


def as_tensor(image):
    return torch.from_numpy(image.transpose(2, 0, 1).copy()).float() / 255


X = as_tensor(IMAGE)


def by_channel(function):
    return np.stack([function(channel) for channel in X.double().numpy()])


def check(ours, expected, inside=0):
    ours = ours.numpy()
    cut = slice(inside, -inside or None)
    np.testing.assert_allclose(ours[:, cut, cut], expected[:, cut, cut], rtol=0, atol=2e-5)


@pytest.mark.parametrize("sigma", [0.4, 0.8, 2.1])
def test_blur_is_scipys(sigma):
    radius = math.ceil(3 * sigma)
    check(
        blur(X, sigma), by_channel(lambda c: ndimage.gaussian_filter(c, sigma, mode="mirror", radius=radius))
    )


@pytest.mark.parametrize(("scale", "passes"), [(1, 1), (2.6, 3)])
def test_median_is_scipys(scale, passes):
    def again(channel):
        for _ in range(passes):
            channel = ndimage.median_filter(channel, 3, mode="nearest")
        return channel

    check(RESTORATIONS["median"](X, scale), by_channel(again))


def test_denoise_is_the_filter_of_wiener():
    # scipy's sees zeros beyond the border, which count in its estimate of the noise: so that is given.
    x = torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(0))
    ours = RESTORATIONS["denoise"](x, 1).numpy()
    for channel, mine in zip(x.double().numpy(), ours, strict=True):
        local = (
            ndimage.uniform_filter(channel**2, 5, mode="nearest")
            - ndimage.uniform_filter(channel, 5, mode="nearest") ** 2
        )
        expected = signal.wiener(channel, 5, noise=local.mean())
        np.testing.assert_allclose(mine[2:-2, 2:-2], expected[2:-2, 2:-2], atol=1e-4)


def test_nonlocal_means_pixel_by_pixel():
    x = torch.rand(3, 14, 17, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = float(noise_variance(x))
    padded = np.pad(x.numpy(), ((0, 0), (3, 3), (3, 3)), mode="reflect")

    def surroundings(pixels, row, column):
        """3 x 3 pixels around one, which the border repeats."""
        rows, columns = (
            np.clip(at + np.arange(-1, 2), 0, size - 1)
            for at, size in zip((row, column), (14, 17), strict=True)
        )
        return pixels[:, rows[:, None], columns]

    for row, column in [(0, 0), (7, 9), (13, 3)]:
        total, weights = np.zeros(3), 0.0
        for down in range(-3, 4):
            for right in range(-3, 4):
                other = padded[:, 3 + down : 17 + down, 3 + right : 20 + right]
                both = (surroundings(pixels, row, column) for pixels in (other, x.numpy()))
                difference = np.square(np.subtract(*both)).mean()
                weight = math.exp(-max(difference - 2 * noise, 0) / (2 * noise))
                total, weights = total + weight * other[:, row, column], weights + weight
        np.testing.assert_allclose(
            RESTORATIONS["nonlocal"](x, 1)[:, row, column], total / weights, rtol=0, atol=1e-10
        )


def test_the_variance_of_noise_is_found():
    ramp = torch.linspace(0, 1, 64).expand(3, 64, 64)
    noisy = ramp + 0.07 * torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert float(noise_variance(noisy)) == pytest.approx(0.07**2, rel=0.1)


def test_equalize_gives_every_pixel_its_rank():
    ranks = by_channel(lambda c: (stats.rankdata(c) - 0.5).reshape(c.shape) / c.size)
    check(RESTORATIONS["equalize"](X, 1), ranks)


def test_autocontrast_stretches_what_was_squeezed():
    squeezed = 0.4 + 0.2 * X
    torch.testing.assert_close(
        RESTORATIONS["autocontrast"](squeezed, 1), RESTORATIONS["autocontrast"](X, 1), atol=1e-4, rtol=0
    )
    flat = torch.full((3, 8, 8), 0.3)
    assert torch.equal(RESTORATIONS["autocontrast"](flat, 1), flat)


def test_deblur_undoes_a_blur():
    blurred = blur(X, 1.0)
    before, after = ((image - X).square().mean() for image in (blurred, deblur(blurred, 1.0)))
    assert after < 0.6 * before
    flat = torch.full((3, 16, 16), 0.3)
    torch.testing.assert_close(deblur(flat, 1.0), flat)


@pytest.mark.parametrize(
    ("name", "sigma"), [("median", 0.1), ("denoise", 0.1), ("blur", 0.1), ("nonlocal", 0.05)]
)
def test_less_noise_than_before(name, sigma):
    noisy = X + sigma * torch.randn(X.shape, generator=torch.Generator().manual_seed(0))
    before, after = ((image - X).square().mean() for image in (noisy, RESTORATIONS[name](noisy, 1)))
    assert after < 0.75 * before


@pytest.mark.parametrize("name", RESTORATIONS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 40), (64, 48)])
def test_any_size_of_image(name, shape):
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    y = RESTORATIONS[name](x, 2.5)
    assert y.shape == x.shape and y.isfinite().all()


def test_views_are_crops_of_the_versions():
    restore = Restore(32, ("plain", "median", "autocontrast"))
    views = restore(IMAGE, 8, np.random.default_rng(0))
    assert views.shape == (8, 3, 32, 32) and restore.groups(8) == [3, 3, 2]
    versions = dict(zip(restore.names, restore.versions(IMAGE), strict=True))
    assert np.array_equal(versions["plain"], IMAGE)
    plan = restore._crop.plan(IMAGE, 8, np.random.default_rng(0))
    for view, box, flip, name in zip(
        views, plan.box, plan.flip, [*["plain"] * 3, *["median"] * 3, *["autocontrast"] * 2], strict=True
    ):
        padded = np.pad(versions[name], ((4, 4), (4, 4), (0, 0)))
        cut = padded[box[0] : box[0] + 32, box[1] : box[1] + 32]
        assert torch.equal(view, as_tensor(cut[:, ::-1] if flip else cut))


def test_large_images_have_mirrored_borders():
    image = np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    restore = Restore(96, ("plain",))
    views, plan = (
        restore(image, 5, np.random.default_rng(0)),
        plan_padded_crops(96, 12, 5, np.random.default_rng(0)),
    )
    padded = np.pad(image, ((12, 12), (12, 12), (0, 0)), mode="reflect")
    for view, (top, left, height, width), flip in zip(views, plan.box, plan.flip, strict=True):
        cut = padded[top : top + height, left : left + width]
        assert torch.equal(view, as_tensor(cut[:, ::-1] if flip else cut))


def test_few_views_show_the_first_versions():
    restore = Restore(32, ("plain", "median", "autocontrast"))
    assert restore.groups(2) == [1, 1] and restore(IMAGE, 2, np.random.default_rng(0)).shape == (2, 3, 32, 32)


def test_an_unknown_restoration_lists_the_choices():
    with pytest.raises(UnknownName, match=r"unknown restoration 'medain'.*did you mean 'median'"):
        Restore(32, ("plain", "medain"))
