import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from memo_tta.errors import ConfigError, InputError, UnknownName
from memo_tta.seeding import sample_rng
from memo_tta.views import AugMix, CropFlip
from memo_tta.views.augmix import APPLY, execute
from memo_tta.views.plan import MAX_DEPTH, NO_OPERATION, OPERATIONS, WIDTH, AugMixPlan, CropPlan
from memo_tta.views.standard import PaddedCrop, ResizedCrop

NORMALISE = {
    "cifar": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
CROP = {"cifar": PaddedCrop(32), "imagenet": ResizedCrop(224)}


def plan_from_recipes(recipes) -> AugMixPlan:
    operations = np.full((len(recipes), WIDTH, MAX_DEPTH), NO_OPERATION)
    parameters = np.zeros(operations.shape)
    for view, recipe in enumerate(recipes):
        for chain, steps in enumerate(recipe["chains"]):
            for depth, step in enumerate(steps):
                operations[view, chain, depth] = OPERATIONS.index(step["op"])
                parameters[view, chain, depth] = step["param"] or 0
    crops = CropPlan(np.array([r["crop"] for r in recipes]), np.array([r["flip"] for r in recipes]))
    weights = np.array([r["w"] for r in recipes], dtype=np.float32)
    return AugMixPlan(crops, operations, parameters, weights, np.float32([r["m"] for r in recipes]))


@pytest.mark.parametrize("kind", ["cifar", "imagenet"])
def test_operations_are_the_published_ones_to_the_bit(reference, kind):
    vectors = reference.arrays(f"augops_{kind}")
    cases = reference.json(f"augops_{kind}")["ops"]
    assert {case["op"] for case in cases} == set(OPERATIONS)
    for case in cases:
        source = Image.fromarray(vectors[f"src__{case['source']}"])
        out = APPLY[case["op"]](source, case["param"] or 0)
        np.testing.assert_array_equal(np.asarray(out), vectors[case["key"]], err_msg=str(case))


@pytest.mark.parametrize("kind", ["cifar", "imagenet"])
def test_the_published_recipes_give_the_published_views(reference, kind):
    vectors = reference.arrays(f"augmix_views_{kind}")
    plan = plan_from_recipes(reference.json(f"augmix_views_{kind}")["recipes"])
    crops = CROP[kind].cut(vectors["image"], plan.crops)
    np.testing.assert_array_equal(crops, vectors["preaugmented"])
    mean, std = (np.float32(v).reshape(3, 1, 1) for v in NORMALISE[kind])
    views = (execute(plan, crops) - mean) / std
    if kind == "cifar":
        np.testing.assert_allclose(views, vectors["views"], atol=2e-6)
    else:
        np.testing.assert_allclose(views[..., ::4, ::4], vectors["views_stride4"], atol=2e-6)
        np.testing.assert_allclose(views.mean(axis=(2, 3)), vectors["view_mean"], atol=1e-5)
        np.testing.assert_allclose(views.std(axis=(2, 3)), vectors["view_std"], atol=1e-5)


def draw_plan(size, n=4000, image_size=None):
    image = np.zeros((*(image_size or (size, size)), 3), np.uint8)
    return AugMix(size).plan(image, n, sample_rng(0, "plans"))


def test_plan_distributions_are_those_that_the_published_code_describes():
    plan = draw_plan(32)
    used = plan.operations[plan.operations != NO_OPERATION]
    depth = (plan.operations != NO_OPERATION).sum(axis=2).ravel()
    assert stats.chisquare(np.bincount(used, minlength=9)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(depth, minlength=4)[1:]).pvalue > 1e-3
    assert stats.kstest(plan.keep, "uniform").pvalue > 1e-3
    assert stats.kstest(plan.weights[:, 0], stats.beta(1, 2).cdf).pvalue > 1e-3
    np.testing.assert_allclose(plan.weights.sum(axis=1), 1, atol=1e-6)
    assert stats.binomtest(int(plan.crops.flip.sum()), 4000).pvalue > 1e-3
    assert plan.crops.box[:, :2].min() == 0 and plan.crops.box[:, :2].max() == 8
    # Operations fill a chain from its start.
    present = plan.operations != NO_OPERATION
    assert (present[..., :-1] >= present[..., 1:]).all() and present[..., 0].all()


@pytest.mark.parametrize(("kind", "size"), [("cifar", 32), ("imagenet", 224)])
def test_whole_number_parameters_match_the_published_counts(reference, kind, size):
    counts = reference.json(f"augmix_stats_{kind}")["int_param_counts"]
    plan = draw_plan(size, image_size=(400, 341) if size == 224 else None)
    for name, published in counts.items():
        ours = plan.parameters[plan.operations == OPERATIONS.index(name)]
        values = sorted(int(value) for value in published)
        assert sorted(set(ours.tolist())) == values
        if len(values) > 1:
            table = [[published[str(v)] for v in values], [(ours == v).sum() for v in values]]
            assert stats.chi2_contingency(table).pvalue > 1e-3, name


def test_shear_and_rotation_levels_follow_their_closed_form():
    plan = draw_plan(32, n=20000)
    shear = plan.parameters[plan.operations == OPERATIONS.index("shear_x")]
    assert stats.kstest(abs(shear), stats.uniform(0.003, 0.027).cdf).pvalue > 1e-3
    assert stats.binomtest(int((shear > 0).sum()), len(shear)).pvalue > 1e-3
    degrees = abs(plan.parameters[plan.operations == OPERATIONS.index("rotate")])
    expected = np.array([1 / 3 - 0.1, 1 / 3, 1 / 3]) / 0.9
    expected /= expected.sum()
    assert stats.chisquare(np.bincount(degrees.astype(int)), expected * len(degrees)).pvalue > 1e-3


def test_resized_crops_keep_area_and_aspect_and_stay_inside():
    box = draw_plan(224, image_size=(400, 341)).crops.box
    top, left, height, width = box.T
    assert (top >= 0).all() and (left >= 0).all()
    assert (top + height <= 400).all() and (left + width <= 341).all()
    area, aspect = height * width / (400 * 341), width / height
    assert area.min() > 0.07 and area.max() <= 1
    assert aspect.min() > 0.73 and aspect.max() < 1.36


@pytest.mark.parametrize("shape", [(1, 300), (300, 1), (2, 2), (500, 3)])
def test_resized_crops_of_odd_shapes(shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    views = AugMix(96)(image, 3, sample_rng(0, 0))
    assert views.shape == (3, 3, 96, 96)


def test_mean_and_spread_of_views_match_the_published_sampler(reference):
    image = reference.arrays("augmix_views_cifar")["image"]
    published = reference.arrays("augmix_stats_cifar")
    views = (AugMix(32)(image, 4000, sample_rng(0, "stats")).numpy() - 0.5) / 0.5
    error = published["std"] * np.sqrt(2 / 4000)
    assert (abs(views.mean(axis=0) - published["mean"]) < 5 * error + 1e-6).mean() > 0.999
    assert abs(views.std(axis=0) / published["std"] - 1).mean() < 0.03


@pytest.mark.parametrize("augment", [AugMix(32), CropFlip(32), AugMix(96), CropFlip(96)])
def test_views_are_float32_in_0_to_1_and_repeatable(augment):
    size = 96 if augment.whole_image else 32
    image = np.random.default_rng(1).integers(0, 256, (size, size, 3), dtype=np.uint8)
    first, again = (augment(image, 5, sample_rng(3, "a")) for _ in range(2))
    other = augment(image, 5, sample_rng(4, "a"))
    assert first.shape == (5, 3, size, size) and first.dtype == torch.float32
    assert first.min() >= 0 and first.max() <= 1 + 1e-6
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_standard_views_are_crops_of_the_padded_image_or_its_mirror():
    image = np.random.default_rng(2).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[4:36, 4:36] = image
    windows = {
        padded[i : i + 32, j : j + 32][:, ::step].tobytes()
        for i in range(9)
        for j in range(9)
        for step in (1, -1)
    }
    for view in CropFlip(32)(image, 50, sample_rng(0, 0)):
        assert (view * 255).round().byte().permute(1, 2, 0).numpy().tobytes() in windows


def test_requests_that_cannot_work_say_so():
    rng = sample_rng(0, 0)
    with pytest.raises(InputError, match=r"32 x 32 pixels, got 20 x 30"):
        AugMix(32)(np.zeros((30, 20, 3), np.uint8), 1, rng)
    with pytest.raises(InputError, match="uint8 image of shape"):
        AugMix(32)(np.zeros((32, 32, 3)), 1, rng)
    with pytest.raises(ConfigError, match="n_views: expected at least 1, got 0"):
        CropFlip(32)(np.zeros((32, 32, 3), np.uint8), 0, rng)
    with pytest.raises(UnknownName, match="did you mean 'padded'"):
        AugMix(32, crop="pad")
