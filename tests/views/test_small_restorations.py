"""Restorations for small images against scipy, OpenCV and closed forms; clean pictures stay as they are."""

import cv2
import numpy as np
import pytest
import torch
from scipy import fft, ndimage, optimize

from memo_tta.data.sample_images import load_sample
from memo_tta.views.deblocking import deblock, extra_zeros, smooth_within_edges
from memo_tta.views.directional_blur import blur_covariance, deblur_by_direction
from memo_tta.views.displaced_pixels import undisplace
from memo_tta.views.haze import stretch_colours
from memo_tta.views.pixelation import ROUGHNESS, depixelate
from memo_tta.views.restored_views import to_float

SAMPLE = [to_float(sample.image) for sample in load_sample()]
X = SAMPLE[3]
SMALL = (depixelate, deblock, undisplace, deblur_by_direction, stretch_colours)


def distance(a, b):
    return float((a - b).square().mean())


def line_blurred(x, degrees, weights=(1, 1, 1, 1, 1)):
    """Average copies moved along a line, a pixel apart, each by interpolation."""
    angle = np.deg2rad(degrees)
    steps = np.arange(len(weights)) - (len(weights) - 1) / 2
    moved = [
        [ndimage.shift(c, (-s * np.sin(angle), s * np.cos(angle)), order=1, mode="mirror") for c in x.numpy()]
        for s in steps
    ]
    return torch.from_numpy(np.average(moved, axis=0, weights=weights)).float()


@pytest.mark.parametrize("one", SMALL)
def test_nearly_all_clean_pictures_are_left_alone(one):
    assert np.mean([torch.equal(one(x), x) for x in SAMPLE]) > 0.9


@pytest.mark.parametrize("degrees", [0, 30, 45, 90, 150])
def test_the_direction_of_a_line_blur_is_found(degrees):
    found = [blur_covariance(line_blurred(x, degrees)).double().numpy() for x in SAMPLE[:80]]
    variances, directions = np.linalg.eigh(np.mean(found, axis=0))
    row, column = directions[:, 1]
    angle = np.rad2deg(np.arctan2(-row, column))
    assert abs((angle - degrees + 90) % 180 - 90) < 12
    assert variances[1] == pytest.approx(2, rel=0.45)  # of five points a pixel apart
    assert variances[0] < variances[1] / 3


@pytest.mark.parametrize("degrees", [0, 60])
def test_a_line_blur_is_undone(degrees):
    weights = np.exp(-(np.arange(-4, 5) ** 2) / (2 * 1.5))
    shown = [(line_blurred(x, degrees, weights), x) for x in SAMPLE[:40]]
    before, after = (sum(distance(f(y), x) for y, x in shown) for f in (lambda y: y, deblur_by_direction))
    assert after < 0.6 * before


@pytest.mark.parametrize("angle", [0.3, 2.0])
def test_deblurring_divides_the_spectrum_by_that_of_the_measured_gaussian(angle, monkeypatch):
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[s, c], [c, -s]])
    covariance = turn @ np.diag([1.7, 0.4]) @ turn.T
    monkeypatch.setattr(
        "memo_tta.views.directional_blur.blur_covariance", lambda _: torch.from_numpy(covariance)
    )
    rng = np.random.default_rng(0)
    x = ndimage.gaussian_filter(rng.random((1, 41, 41)), (0, 2, 2))
    margin = 6  # four deviations of the wider axis
    padded = np.pad(x[0], margin, mode="reflect")
    grid = np.stack(np.meshgrid(np.fft.fftfreq(53), np.fft.fftfreq(53), indexing="ij"))
    transfer = np.exp(-2 * np.pi**2 * np.einsum("iab,ij,jab->ab", grid, covariance, grid))
    wanted = np.fft.ifft2(np.fft.fft2(padded) * transfer / (transfer**2 + 0.005)).real * 1.005
    found = deblur_by_direction(torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(found, wanted[margin:-margin, margin:-margin], atol=1e-6)


def test_cells_become_the_smoothest_line_with_their_means():
    cells = [0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 6]
    values = np.array([0.1, 0.2, 0.8, 0.7, 0.3, 0.5, 0.9])

    def cost(line):
        means = [line[np.equal(cells, cell)].mean() for cell in range(7)]
        return np.sum((means - values) ** 2) + ROUGHNESS * np.sum(np.diff(line, n=2) ** 2)

    smoothest = optimize.minimize(cost, values[cells], tol=1e-12).x
    rows = torch.from_numpy(values[cells]).float()[None, :, None] + torch.arange(12) / 100
    found = depixelate(rows)[0]
    np.testing.assert_allclose(found[:, 0], smoothest, atol=1e-3)
    torch.testing.assert_close(found - found[:, :1], torch.arange(12).expand(12, 12) / 100, rtol=0, atol=1e-5)


def test_pixelation_is_undone():
    index = np.arange(32) * 20 // 32
    mean = np.equal.outer(np.arange(20), index) / np.bincount(index)[:, None]
    shown = [
        torch.from_numpy(np.floor((mean @ x.numpy() @ mean.T)[:, index][:, :, index] * 255) / 255).float()
        for x in SAMPLE[:40]
    ]
    before, after = (
        sum(distance(f(y), x) for y, x in zip(shown, SAMPLE, strict=False)) for f in (lambda y: y, depixelate)
    )
    assert after < 0.8 * before


def test_an_image_of_one_colour_has_no_cells():
    flat = torch.full((3, 20, 20), 0.4)
    assert all(torch.equal(one(flat), flat) for one in SMALL)


def test_zeros_on_the_grid_are_counted():
    rng = np.random.default_rng(0)
    coefficients = np.zeros((4, 8, 4, 8))
    coefficients[:, :3, :, :3] = rng.normal(0, 0.1, (4, 3, 4, 3))
    coefficients[:, 0, :, 0] += 4
    blocks = np.asarray(fft.idctn(coefficients, axes=(1, 3), norm="ortho")).reshape(32, 32)
    x = torch.from_numpy(blocks).float().expand(3, 32, 32)
    between = np.asarray(fft.dctn(blocks[4:28, 4:28].reshape(3, 8, 3, 8), axes=(1, 3), norm="ortho"))
    is_fine = np.add.outer(np.arange(8), np.arange(8)) >= 5
    zeros = (np.abs(between.transpose(0, 2, 1, 3)[..., is_fine]) < 1.5 / 255).mean()
    assert extra_zeros(x) == pytest.approx(1 - zeros, abs=1e-6)
    assert torch.equal(deblock(x), smooth_within_edges(x))


def test_smoothing_within_edges_is_the_bilateral_filter():
    wanted = cv2.bilateralFilter(
        np.ascontiguousarray(np.pad(X.permute(1, 2, 0).numpy(), ((4, 4), (4, 4), (0, 0)), "edge")),
        5,
        0.08,
        1.0,
    )[4:-4, 4:-4]
    # OpenCV takes a disc of radius 2 and interpolates its weights in a table.
    assert np.abs(smooth_within_edges(X).permute(1, 2, 0).numpy() - wanted).max() < 0.02


def test_torn_edges_are_smoothed():
    rng = np.random.default_rng(0)
    shown = []
    for x in SAMPLE[:40]:
        at = np.indices((32, 32)) + rng.normal(0, 0.8, (2, 32, 32))
        shown.append(
            torch.from_numpy(
                np.stack([ndimage.map_coordinates(c, at, order=1, mode="mirror") for c in x.numpy()])
            )
        )
    found = [undisplace(y) for y in shown]
    assert np.mean([not torch.equal(y, z) for y, z in zip(shown, found, strict=True)]) > 0.9
    assert sum(map(distance, found, SAMPLE)) < 0.75 * sum(map(distance, shown, SAMPLE))
    y = shown[0].numpy()
    cross = [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    wanted = [
        (
            ndimage.gaussian_filter(c, 0.5, mode="nearest", radius=1)
            + ndimage.median_filter(c, footprint=cross, mode="nearest")
        )
        / 2
        for c in y
    ]
    np.testing.assert_allclose(found[0], np.stack(wanted), atol=1e-3)


def test_a_haze_of_any_tint_is_undone():
    airlight, share = torch.tensor([0.9, 0.8, 0.7])[:, None, None], 0.7
    low, high = (torch.from_numpy(np.percentile(X.flatten(1).numpy(), q, axis=1)).float() for q in (1, 99))
    wanted = (X - low[:, None, None]) / (high - low)[:, None, None]
    found = stretch_colours(X * (1 - share) + airlight * share)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.05)
