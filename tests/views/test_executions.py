"""Every execution of a plan gives the pixels of Pillow, which makes one view after another."""

import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from PIL import __version__ as pillow_version

from memo_tta.bench import published_loop
from memo_tta.data.sample_images import load_sample
from memo_tta.seeding import sample_rng
from memo_tta.views import AugMix, augmix, crop_flip, execution_compiled, execution_portable
from memo_tta.views.augmix_plan import (
    MAX_DEPTH,
    NO_OPERATION,
    OPERATIONS,
    WIDTH,
    AugMixPlan,
    CropPlan,
    plan_augmix,
)
from memo_tta.views.crop_flip import PaddedCrop, ResizedCrop
from tests.conftest import Vectors

IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
PLANS = {32: 1000, 224: 1000 if IS_SOAK else 40}
# Mixed views: at most 2 grey levels anywhere, half of one on average.
MOST, MEAN = 2 / 255, 0.5 / 255
# Before version 13, Pillow shrank the width first even of tall crops, which rounds some pixels differently.
CROP_LEVELS = 0 if int(pillow_version.split(".")[0]) >= 13 else 1

NORMALISE = {
    "cifar": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
CROP = {"cifar": PaddedCrop(32), "imagenet": ResizedCrop(224)}


def with_pillow(plan, crops, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)):
    images = (Image.fromarray(np.ascontiguousarray(crop.transpose(1, 2, 0))) for crop in crops)
    return published_loop.mix(plan, images, mean, std)


EXECUTIONS = {"compiled": execution_compiled, "portable": execution_portable}
MIXES = {name: execution.mix for name, execution in EXECUTIONS.items()}
each_mix = pytest.mark.parametrize("run", MIXES.values(), ids=MIXES.keys())
each_execution = pytest.mark.parametrize("execution", EXECUTIONS.values(), ids=EXECUTIONS.keys())


@pytest.fixture
def use(monkeypatch):
    """Make augmentations use an execution."""

    def choose(execution):
        for module in (augmix, crop_flip):
            monkeypatch.setattr(module, "cpu_execution", lambda: execution)

    return choose


def recipe(chains, n=1, keep=0.0):
    """Return a plan of n views with the same chains of (operation, parameter); only the first has weight."""
    operations = np.full((n, WIDTH, MAX_DEPTH), NO_OPERATION)
    parameters = np.zeros(operations.shape)
    for chain, steps in enumerate(chains):
        for depth, (name, parameter) in enumerate(steps):
            operations[:, chain, depth] = OPERATIONS.index(name)
            parameters[:, chain, depth] = parameter or 0
    weights = np.tile(np.array([1, 0, 0], np.float32), (n, 1))
    crops = CropPlan(np.zeros((n, 4), np.int64), np.zeros(n, bool))
    return AugMixPlan(crops, operations, parameters, weights, np.full(n, keep, np.float32))


def grey_levels(views):
    return np.round(np.asarray(views) * 255).astype(int)


def planes(image):
    return image.transpose(2, 0, 1)[None].copy()


PHOTO = load_sample()[3].image


def pictures(height, width):
    """Return a photo, noise, and images with low contrast, few values, two values and one value."""
    rng = np.random.default_rng(height * 1000 + width)
    photo = Image.fromarray(PHOTO).resize((width, height), Image.Resampling.BICUBIC)
    sharp = np.asarray(photo.filter(ImageFilter.SHARPEN))
    noise = rng.integers(0, 256, sharp.shape, dtype=np.uint8)
    two = np.where(noise < 128, np.uint8(100), np.uint8(101))
    flat = np.full_like(sharp, (0, 255, 77))
    return [sharp, noise, 90 + sharp // 16, sharp // 64 * 64, two, flat]


PARAMETERS = {
    "autocontrast": [0],
    "equalize": [0],
    "rotate": [0, 1, -1, 2, -2, 17, -30, 45, 90, -90, 180, 360, 123.4],
    "solarize": [0, 1, 128, 231, 254, 255, 256],
    "shear_x": [0.003, -0.03, 0.0171, 0.25, -0.3, 1, 2.5],
    "shear_y": [0.003, -0.03, 0.0171, 0.25, -0.3, 1, 2.5],
    "translate_x": [0, 1, -1, 7, -7, 30, -31, 32, -32, 500, -500],
    "translate_y": [0, 1, -1, 7, -7, 30, -31, 32, -32, 500, -500],
    "posterize": [1, 2, 3, 4, 8],
}


@each_mix
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", [(32, 32), (31, 45), (224, 224), (1, 1), (1, 9), (9, 1), (2, 2)])
def test_every_operation_is_pillows(run, name, shape):
    for image in pictures(*shape):
        for parameter in PARAMETERS[name]:
            expected = np.asarray(published_loop.APPLY[name](Image.fromarray(image), parameter))
            got = grey_levels(run(recipe([[(name, parameter)]]), planes(image)))[0]
            difference = abs(got.transpose(1, 2, 0) - expected.astype(int)).max()
            # The last digit of the matrix may differ for angles that no plan draws.
            allowed = 1 if name == "rotate" and abs(parameter) > 2 else 0
            assert difference <= allowed, f"{parameter}: {difference} grey levels"


@pytest.fixture
def published(request):
    """Return published vectors; those of ImageNet images are not part of the repository."""

    def find(kind: str) -> Vectors:
        if kind == "cifar":
            return request.getfixturevalue("golden")
        return Vectors(request.getfixturevalue("reference") / "golden")

    return find


@each_mix
@pytest.mark.parametrize("kind", ["cifar", "imagenet"])
def test_operations_are_the_published_ones_to_the_bit(published, kind, run):
    vectors = published(kind).arrays(f"augops_{kind}")
    cases = published(kind).json(f"augops_{kind}")["ops"]
    assert {case["op"] for case in cases} == set(OPERATIONS)
    for case in cases:
        crops = planes(vectors[f"src__{case['source']}"])
        got = grey_levels(run(recipe([[(case["op"], case["param"])]]), crops))
        np.testing.assert_array_equal(got, planes(vectors[case["key"]]), err_msg=str(case))


@pytest.mark.parametrize("run", [with_pillow, *MIXES.values()])
@pytest.mark.parametrize("kind", ["cifar", "imagenet"])
def test_the_published_recipes_give_the_published_views(published, kind, run):
    vectors = published(kind).arrays(f"augmix_views_{kind}")
    recipes = published(kind).json(f"augmix_views_{kind}")["recipes"]
    plan = plan_from(recipes)
    crops = CROP[kind].cut(vectors["image"], plan.crops)
    views = run(plan, crops, *NORMALISE[kind]).numpy()
    if kind == "cifar":
        np.testing.assert_allclose(views, vectors["views"], atol=2e-6)
    else:
        np.testing.assert_allclose(views[..., ::4, ::4], vectors["views_stride4"], atol=2e-6)
        np.testing.assert_allclose(views.mean(axis=(2, 3)), vectors["view_mean"], atol=1e-5)
        np.testing.assert_allclose(views.std(axis=(2, 3)), vectors["view_std"], atol=1e-5)


@each_execution
@pytest.mark.parametrize("kind", ["cifar", "imagenet"])
def test_the_published_recipes_give_the_published_crops(published, use, kind, execution):
    vectors = published(kind).arrays(f"augmix_views_{kind}")
    plan = plan_from(published(kind).json(f"augmix_views_{kind}")["recipes"])
    use(execution)
    crops = CROP[kind].cut(vectors["image"], plan.crops)
    np.testing.assert_array_equal(crops.transpose(0, 2, 3, 1), vectors["preaugmented"])


def plan_from(recipes) -> AugMixPlan:
    parts = [
        recipe([[(step["op"], step["param"]) for step in chain] for chain in r["chains"]]) for r in recipes
    ]
    return AugMixPlan(
        CropPlan(np.array([r["crop"] for r in recipes]), np.array([r["flip"] for r in recipes])),
        np.concatenate([part.operations for part in parts]),
        np.concatenate([part.parameters for part in parts]),
        np.array([r["w"] for r in recipes], dtype=np.float32),
        np.array([r["m"] for r in recipes], np.float32),
    )


def check_close(got, expected):
    difference = (got - expected).abs()
    assert difference.max() <= MOST and difference.mean() <= MEAN
    assert difference.max() < 1e-5  # in fact they do the same arithmetic


@each_mix
@pytest.mark.parametrize(("size", "crop"), [(32, "padded"), (224, "resized")])
def test_random_plans_give_pillows_views(run, size, crop):
    augment, step = AugMix(size, crop), 20
    for part in range(PLANS[size] // step):
        shape = (size, size) if crop == "padded" else [(375, 500), (500, 333), (180, 240)][part % 3]
        image = pictures(*shape)[part % 4]
        plan = augment.plan(image, step, sample_rng(part, "agreement"))
        crops = augment._crop.cut(image, plan.crops)
        check_close(run(plan, crops), with_pillow(plan, crops))


@each_execution
@pytest.mark.parametrize(("size", "crop", "shape"), [(32, "padded", (32, 32)), (224, "resized", (300, 400))])
def test_whole_pipelines_agree_and_normalise_alike(use, execution, size, crop, shape):
    use(execution)
    image, augment = pictures(*shape)[0], AugMix(size, crop)
    mean, std = NORMALISE["imagenet"]
    plan = augment.plan(image, 6, sample_rng(0, 0))
    expected = published_loop.make_views(image, plan, size, crop, mean, std)
    got = augment.normalised(image, 6, sample_rng(0, 0), mean, std)
    plain = augment(image, 6, sample_rng(0, 0))
    scale = torch.tensor([mean, std]).view(2, 3, 1, 1)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close((plain - scale[0]) / scale[1], got, atol=1e-5, rtol=0)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 5), st.integers(0, 2**32))
def test_images_of_any_shape(height, width, kind, seed):
    rng = np.random.default_rng(seed)
    crops = np.repeat(planes(pictures(height, width)[kind]), 3, axis=0)
    plan = plan_augmix(CropPlan(np.zeros((3, 4), np.int64), np.zeros(3, bool)), 40, rng)
    expected = with_pillow(plan, crops)
    for run in MIXES.values():
        check_close(run(plan, crops), expected)


@given(
    st.integers(1, 400), st.integers(1, 400), st.sampled_from([1, 2, 31, 65, 100]), st.booleans(), st.data()
)
def test_resized_crops_are_pillows(height, width, size, flip, data):
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    box = (top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left)))
    image = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    plan = CropPlan(np.array([box]), np.array([flip]))
    (got,), (portable,) = (execution.resized_crops(image, plan, size) for execution in EXECUTIONS.values())
    expected = published_loop.mirrored(published_loop.resized_crop(Image.fromarray(image), box, size), flip)
    assert abs(got.transpose(1, 2, 0).astype(int) - np.asarray(expected)).max() <= CROP_LEVELS
    np.testing.assert_array_equal(portable, got)


@given(st.integers(1, 64), st.integers(0, 2**32))
def test_padded_crops_are_pillows(size, seed):
    image, crop = pictures(size, size)[1], PaddedCrop(size)
    plan = crop.plan(image, 4, np.random.default_rng(seed))
    crops, portable = (e.padded_crops(image, plan, size, crop.padding) for e in EXECUTIONS.values())
    for got, box, flip in zip(crops, plan.box.tolist(), plan.flip, strict=True):
        expected = published_loop.mirrored(
            published_loop.padded_crop(Image.fromarray(image), box, size), flip
        )
        np.testing.assert_array_equal(got.transpose(1, 2, 0), np.asarray(expected))
    np.testing.assert_array_equal(portable, crops)
    assert portable.flags.c_contiguous  # another memory layout would change the last bits of a prediction


@pytest.mark.parametrize("shape", [(375, 500), (500, 333), (900, 300), (180, 240), (60, 90)])
def test_the_crops_of_a_plan_are_the_same_without_compiled_code(shape):
    image, crop = pictures(*shape)[1], ResizedCrop(224)
    plan = crop.plan(image, 16, sample_rng(0, "crops"))
    compiled, portable = (e.resized_crops(image, plan, 224) for e in EXECUTIONS.values())
    np.testing.assert_array_equal(portable, compiled)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_makes_the_views_of_the_cpu():
    image, augment = pictures(300, 400)[0], AugMix(224)
    views = [augment.normalised(image, 8, sample_rng(0, 0), (0, 0, 0), (1, 1, 1), d) for d in ("cpu", "cuda")]
    check_close(views[1].cpu(), views[0])
