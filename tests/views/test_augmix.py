import numpy as np
import pytest
import torch

from memo_tta.errors import ConfigError, InputError, UnknownName
from memo_tta.seeding import sample_rng
from memo_tta.views import AugMix, CropFlip


@pytest.mark.parametrize("shape", [(1, 300), (300, 1), (2, 2), (500, 3)])
def test_resized_crops_of_odd_shapes(shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    views = AugMix(96)(image, 3, sample_rng(0, 0))
    assert views.shape == (3, 3, 96, 96)


def test_mean_and_spread_of_views_match_the_published_sampler(golden):
    image = golden.arrays("augmix_views_cifar")["image"]
    published = golden.arrays("augmix_stats_cifar")
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
