"""Views of images that are not square, or not of three channels: the pixels of Pillow, in every execution."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from memo_tta.bench import published_loop
from memo_tta.errors import InputError
from memo_tta.seeding import sample_rng
from memo_tta.views import AUGMENTATIONS, AugMix, CropFlip, execution_compiled, execution_portable
from memo_tta.views.augmix_plan import CropPlan, plan_augmix, plan_resized_crops
from memo_tta.views.crop_flip import MildCrop, PaddedCrop
from memo_tta.views.restoration import RESTORATIONS
from tests.views.test_executions import CROP_LEVELS, check_close, pictures

EXECUTIONS = (execution_compiled, execution_portable)
SIZES = [(16, 40), (40, 16), (1, 5), (96, 40)]
sides = st.integers(1, 120)


def generated(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@given(sides, sides, sides, sides, st.booleans())
def test_crops_are_resized_to_any_size_as_pillow_does(height, width, to_height, to_width, flip):
    image, box = pictures(height, width)[1], (0, 0, height, width)
    plan = CropPlan(np.array([box]), np.array([flip]))
    compiled, portable = (e.resized_crops(image, plan, (to_height, to_width))[0] for e in EXECUTIONS)
    expected = Image.fromarray(image).resize((to_width, to_height), Image.Resampling.BILINEAR)
    expected = published_loop.mirrored(expected, flip)
    assert abs(compiled.transpose(1, 2, 0).astype(int) - np.asarray(expected)).max() <= CROP_LEVELS
    np.testing.assert_array_equal(portable, compiled)


@pytest.mark.parametrize("size", SIZES)
def test_padded_crops_of_any_size_are_windows_of_the_padded_image(size):
    image, crop = generated(*size, 3), PaddedCrop(size)
    plan = crop.plan(image, 20, sample_rng(0, 0))
    down, right = size[0] // 8, size[1] // 8
    padded = np.pad(image, ((down, down), (right, right), (0, 0)))
    for execution in EXECUTIONS:
        crops = execution.padded_crops(image, plan, size, crop.padding)
        for got, (top, left, *_), flip in zip(crops, plan.box, plan.flip, strict=True):
            window = padded[top : top + size[0], left : left + size[1]]
            np.testing.assert_array_equal(got.transpose(1, 2, 0), window[:, ::-1] if flip else window)
    assert plan.box[:, 0].max() <= 2 * down and plan.box[:, 1].max() <= 2 * right


def test_both_sides_of_padded_crops_are_used():
    plan = PaddedCrop((16, 40)).plan(generated(16, 40, 3), 500, sample_rng(0, 0))
    assert set(plan.box[:, 0]) == set(range(5)) and set(plan.box[:, 1]) == set(range(11))


@pytest.mark.parametrize("size", SIZES)
def test_chains_of_any_size_are_pillows(size):
    crops = np.repeat(generated(1, 3, *size), 6, axis=0)
    plan = plan_augmix(CropPlan(np.zeros((6, 4), np.int64), np.zeros(6, bool)), size, sample_rng(0, 0))
    images = (Image.fromarray(np.ascontiguousarray(crop.transpose(1, 2, 0))) for crop in crops)
    expected = published_loop.mix(plan, images, (0.0,) * 3, (1.0,) * 3)
    for execution in EXECUTIONS:
        check_close(execution.mix(plan, crops), expected)


def test_translations_are_relative_to_their_own_side():
    plan = plan_augmix(
        CropPlan(np.zeros((900, 4), np.int64), np.zeros(900, bool)), (30, 3000), sample_rng(0, 0)
    )
    largest = {
        name: abs(plan.parameters[plan.operations == index]).max() for index, name in ((6, "x"), (7, "y"))
    }
    assert largest["y"] <= 1 and 90 < largest["x"] <= 100  # a third of the side, times at most 0.1


def test_resized_crops_have_the_proportions_of_the_input():
    boxes = plan_resized_crops(400, 4000, 300, sample_rng(0, 0), (0.08, 0.5), aspect=8.0).box
    ratio = boxes[:, 3] / boxes[:, 2]
    assert 5.8 < ratio.min() < ratio.max() < 10.8
    square = plan_resized_crops(400, 4000, 300, sample_rng(0, 0)).box
    assert (square[:, 3] / square[:, 2]).max() < 1.4


@pytest.mark.parametrize("make", [AugMix, CropFlip], ids=["augmix", "standard"])
@pytest.mark.parametrize("size", [(16, 40), 32, (96, 72)])
def test_grey_views_are_a_channel_of_those_of_the_same_image_in_colour(make, size):
    height, width = (size, size) if isinstance(size, int) else size
    grey = generated(height, width, 1)
    views, colour = (make(size)(image, 8, sample_rng(0, 0)) for image in (grey, np.repeat(grey, 3, axis=2)))
    assert views.shape == (8, 1, height, width)
    # The first channel: what a warp leaves empty is black in the others.
    torch.testing.assert_close(views[:, 0], colour[:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("crop", ["padded", "resized"])
def test_every_channel_is_processed_on_its_own(channels, crop):
    image = generated(24, 32, channels)
    for execution in EXECUTIONS:
        augment = AugMix((24, 32), crop)
        plan = augment.plan(image, 6, sample_rng(0, 0))
        cut = execution.resized_crops if crop == "resized" else execution.padded_crops
        padding = [] if crop == "resized" else [(3, 4)]
        crops = cut(image, plan.crops, (24, 32), *padding)
        single = [cut(image[..., c : c + 1], plan.crops, (24, 32), *padding) for c in range(channels)]
        np.testing.assert_array_equal(crops, np.concatenate(single, axis=1))
        first = execution.mix(plan, single[0])
        torch.testing.assert_close(execution.mix(plan, crops)[:, :1], first, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(24, 40), (100, 70)])
def test_every_augmentation_makes_views_of_every_shape(name, channels, size):
    image = generated(*size, channels)
    views = AUGMENTATIONS[name](size)(image, 4, sample_rng(0, 0))
    assert views.shape == (4, channels, *size) and views.min() >= 0 and views.max() <= 1
    with pytest.raises(
        InputError, match=r"expected a uint8 image of shape \(height, width, 3\), or with 1, 2"
    ):
        AUGMENTATIONS[name](size)(generated(*size, 5), 4, sample_rng(0, 0))


def test_mild_crops_show_most_of_a_wide_image():
    plan = MildCrop((40, 160)).plan(generated(40, 160, 3), 200, sample_rng(0, 0))
    share = plan.box[:, 2] * plan.box[:, 3] / (40 * 160)
    assert np.median(share) > 0.8


@pytest.mark.parametrize("name", RESTORATIONS)
def test_a_restoration_of_grey_is_that_of_the_same_image_in_colour(name):
    clean = torch.from_numpy(
        np.array(Image.fromarray(generated(6, 9, 1)[..., 0]).resize((72, 48), 3))
    ).float()
    noisy = (clean / 255 + 0.1 * torch.randn(48, 72, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    noisy = noisy if name != "stretched" else 0.4 + 0.2 * noisy
    grey, colour = RESTORATIONS[name](noisy[None]), RESTORATIONS[name](noisy.expand(3, -1, -1).clone())
    assert grey.shape == (1, 48, 72)
    # Of colours, noise is removed from the luminance alone.
    if name in ("denoised", "restored", "restored as a large image"):
        before, after = ((x - clean / 255).square().mean() for x in (noisy, grey[0]))
        assert after < 0.7 * before
    else:
        torch.testing.assert_close(grey[0], colour[0], rtol=1e-4, atol=1e-5)
