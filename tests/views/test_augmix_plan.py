"""What plans draw, against the published sampler: its counts, its closed forms, a second implementation."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from memo_tta.seeding import sample_rng
from memo_tta.views import AugMix
from memo_tta.views.augmix_plan import CROP_AREA, CROP_ASPECT, NO_OPERATION, OPERATIONS

CHANCE = 1e-3  # seeds are fixed: a test that passes once passes always


def draw_plan(size, n=4000, image_size=None):
    image = np.zeros((*(image_size or (size, size)), 3), np.uint8)
    return AugMix(size).plan(image, n, sample_rng(0, "plans"))


def is_uniform(counts) -> bool:
    return stats.chisquare(counts).pvalue > CHANCE


def follows(sample, distribution) -> bool:
    return stats.kstest(sample, distribution).pvalue > CHANCE


def have_one_distribution(counts) -> bool:
    """Whether the rows of counts may be samples of the same distribution."""
    result: Any = stats.chi2_contingency(counts)
    return result.pvalue > CHANCE


def test_operations_depths_and_weights_are_those_that_the_published_code_describes():
    plan = draw_plan(32)
    present = plan.operations != NO_OPERATION
    assert is_uniform(np.bincount(plan.operations[present], minlength=9))
    assert is_uniform(np.bincount(present.sum(axis=2).ravel(), minlength=4)[1:])
    assert follows(plan.keep, "uniform")
    for weights in plan.weights.T:
        assert follows(weights, stats.beta(1, 2).cdf)
    np.testing.assert_allclose(plan.weights.sum(axis=1), 1, atol=1e-6)
    # Operations fill a chain from its start.
    assert (present[..., :-1] >= present[..., 1:]).all() and present[..., 0].all()


@pytest.mark.parametrize(("kind", "size"), [("cifar", 32), ("imagenet", 224)])
def test_counts_match_the_published_ones(golden, kind, size):
    published = golden.json(f"augmix_stats_{kind}")
    plan = draw_plan(size, image_size=(400, 341) if size == 224 else None)
    ours = [(plan.operations == OPERATIONS.index(name)).sum() for name in OPERATIONS]
    theirs = [published["op_counts"][name] for name in OPERATIONS]
    assert have_one_distribution([ours, theirs])
    depths = np.bincount((plan.operations != NO_OPERATION).sum(axis=2).ravel())[1:]
    assert have_one_distribution([depths, [published["depth_counts"][d] for d in "123"]])
    for name, counts in published["int_param_counts"].items():
        drawn = plan.parameters[plan.operations == OPERATIONS.index(name)]
        values = sorted(int(value) for value in counts)
        assert sorted(set(drawn.tolist())) == values
        if len(values) > 1:
            table = [[counts[str(v)] for v in values], [(drawn == v).sum() for v in values]]
            assert have_one_distribution(table), name


def test_shear_and_rotation_levels_follow_their_closed_form():
    plan = draw_plan(32, n=20000)
    for name in ("shear_x", "shear_y"):
        shear = plan.parameters[plan.operations == OPERATIONS.index(name)]
        assert follows(abs(shear), stats.uniform(0.003, 0.027).cdf)
        assert stats.binomtest(int((shear > 0).sum()), len(shear)).pvalue > CHANCE
    degrees = abs(plan.parameters[plan.operations == OPERATIONS.index("rotate")])
    expected = np.array([1 / 3 - 0.1, 1 / 3, 1 / 3]) / 0.9
    assert stats.chisquare(np.bincount(degrees.astype(int)), expected * len(degrees)).pvalue > CHANCE


@pytest.mark.parametrize(("size", "image_size"), [(32, None), (224, (400, 341))])
def test_half_of_the_crops_are_mirrored(size, image_size):
    flip = draw_plan(size, image_size=image_size).crops.flip
    assert stats.binomtest(int(flip.sum()), len(flip)).pvalue > CHANCE


def test_padded_crops_begin_anywhere_in_the_padding():
    box = draw_plan(32).crops.box
    for corner in box[:, :2].T:
        assert is_uniform(np.bincount(corner, minlength=9)) and corner.max() == 8
    assert (box[:, 2:] == 32).all()


def test_mild_crops_keep_most_of_the_image_that_the_classifier_sees():
    augmix = AugMix(224, "mild")
    top, left, h, w = augmix.plan(np.zeros((224, 224, 3), np.uint8), 4000, sample_rng(0, "plans")).crops.box.T
    assert not augmix.whole_image
    share = h * w / 224**2
    assert (
        0.79 < share.min() < 0.81 and share.max() == 1 and (top + h <= 224).all() and (left + w <= 224).all()
    )


def test_resized_crops_are_drawn_as_the_published_ones():
    height, width = 400, 341
    top, left, h, w = draw_plan(224, image_size=(height, width)).crops.box.T
    rng = np.random.default_rng(1)
    area = height * width * rng.uniform(*CROP_AREA, 20_000)
    least, most = np.log(CROP_ASPECT)
    aspect = np.exp(rng.uniform(least, most, 20_000))
    tried = np.round(np.sqrt([area / aspect, area * aspect]))
    fits = (tried[0] <= height) & (tried[1] <= width)
    for ours, theirs in (h, tried[0][fits]), (w, tried[1][fits]), (h / w, (tried[0] / tried[1])[fits]):
        result: Any = stats.ks_2samp(ours, theirs)
        assert result.pvalue > CHANCE
    for start, room in (top, height - h), (left, width - w):
        assert (start >= 0).all() and (start <= room).all()
        # A whole number from 0 to room, spread evenly over its share of the unit interval.
        assert follows((start + np.random.default_rng(2).random(len(start))) / (room + 1), "uniform")
