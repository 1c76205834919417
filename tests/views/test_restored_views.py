"""Views of restored images, against crops of each restoration."""

import numpy as np
import pytest
import torch

from memo_tta.data.sample_images import load_sample
from memo_tta.errors import ConfigError, InputError, UnknownName
from memo_tta.views.augmix_plan import plan_even_crops, plan_padded_crops
from memo_tta.views.restoration import RESTORATIONS
from memo_tta.views.restored_versions import RestoredVersions
from memo_tta.views.restored_views import Restore, to_float

IMAGE = load_sample()[3].image
SHARES = {"plain": 1, "stretched": 2, "deblurred": 1}


def rng():
    return np.random.default_rng(0)


def test_views_of_small_images_are_crops_of_the_versions():
    image = IMAGE // 4 + 90
    restore = Restore(32, SHARES)
    views, draw = list(restore(image, 8, rng())), rng()
    assert restore.groups(8) == {"plain": 2, "stretched": 4, "deblurred": 2}
    assert (views[0] - views[2]).abs().max() > 0.1
    for name, count in restore.groups(8).items():
        version = RESTORATIONS[name](to_float(image)).clamp(0, 1).permute(1, 2, 0).numpy()
        padded = np.pad(version, ((4, 4), (4, 4), (0, 0)))
        crops = plan_even_crops(32, 4, count, draw)
        for (top, left, height, width), flip in zip(crops.box, crops.flip, strict=True):
            cut = padded[top : top + height, left : left + width]
            wanted = torch.from_numpy((cut[:, ::-1] if flip else cut).copy()).permute(2, 0, 1)
            torch.testing.assert_close(views.pop(0), wanted, rtol=0, atol=1e-6)
    assert not views


def test_views_of_large_images_are_its_versions():
    image = np.resize(IMAGE // 4 + 90, (96, 96, 3))
    versions = RestoredVersions(96)
    assert list(versions.groups(3)) == ["plain", "restored, mirrored", "half-restored"]
    plain, restored, half, mirrored = versions(image, 4, rng())
    assert torch.equal(plain, to_float(image))
    assert torch.equal(restored.flip(2), RESTORATIONS["restored"](to_float(image)))
    torch.testing.assert_close(2 * half - plain, restored.flip(2))
    assert torch.equal(mirrored.flip(2), half) and not torch.equal(half, plain)
    assert torch.equal(versions.preview(image, 2, rng()), plain.flip(2)[None])
    assert torch.equal(versions(image, 1, rng()), plain[None])
    with pytest.raises(InputError, match="expected an image of 96 x 96 pixels, got 32 x 32"):
        versions(IMAGE, 4, rng())


def test_the_first_views_show_the_image_and_what_was_measured():
    restore, hazy, draw = Restore(32), IMAGE // 4 + 90, rng()
    plain = Restore(32, {"plain": 1})(hazy, 1, draw)
    restored = Restore(32, {"restored": 1})(hazy, 1, draw)
    assert torch.equal(restore.preview(hazy, 2, rng()), torch.cat([plain, restored]))
    assert torch.equal(restore.preview(hazy, 1, rng()), plain)
    assert torch.equal(
        Restore(32, {"plain": 1}).preview(hazy, 2, rng()), Restore(32, {"plain": 1})(hazy, 2, rng())
    )


def test_few_views_show_the_first_versions():
    assert Restore(32, SHARES).groups(1) == {"plain": 1}
    assert Restore(32, SHARES).groups(2) == {"plain": 1, "stretched": 1}
    assert sum(Restore(32, SHARES).groups(7).values()) == 7
    assert Restore(32, {"plain": 6, "restored": 11}).groups(85) == {"plain": 30, "restored": 55}


def test_what_is_refused():
    with pytest.raises(UnknownName, match=r"unknown restoration 'stretchd'.*did you mean 'stretched'"):
        Restore(32, {"plain": 1, "stretchd": 1})
    with pytest.raises(ConfigError, match="shares: expected at least 1 for 'plain', got 0"):
        Restore(32, {"plain": 0})
    with pytest.raises(ConfigError, match="shares: expected at least one version"):
        Restore(32, {})
    with pytest.raises(InputError, match="expected an image of 16 x 16 pixels, got 32 x 32"):
        Restore(16)(IMAGE, 4, rng())
    with pytest.raises(InputError, match=r"expected a uint8 image of shape \(height, width, 3\)"):
        Restore(32)(IMAGE[..., 0], 4, rng())


def test_even_crops_are_spread_over_all_shifts_and_half_are_mirrored():
    plan = plan_even_crops(32, 4, 90, rng())
    for corner in plan.box[:, :2].T:
        assert np.bincount(corner, minlength=9).tolist() == pytest.approx([10] * 9, abs=2)
    assert plan.flip.sum() == 45 and (plan.flip[::2] == plan.flip[0]).all()
    assert len(np.unique(plan.box, axis=0)) > len(np.unique(plan_padded_crops(32, 4, 90, rng()).box, axis=0))
    few = plan_even_crops(32, 4, 5, rng())
    assert np.array_equal(few.box, plan.box[:5]) and np.array_equal(few.flip, plan.flip[:5])


def test_an_average_over_even_crops_varies_less():
    """Compare the spread of a function of the shift over random starts."""

    def spread(plan):
        corners = [plan(32, 4, 8, np.random.default_rng(seed)).box[:, :2] for seed in range(300)]
        return np.std([np.cos(corner / 3).sum(axis=1).mean() for corner in corners])

    assert spread(plan_even_crops) < 0.6 * spread(plan_padded_crops)
