from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import memo_tta as mt
from memo_tta.errors import InputError
from tests.nets import build_classifier, pictures


@pytest.mark.parametrize(
    "convert", [Image.fromarray, lambda a: a, lambda a: torch.from_numpy(a).permute(2, 0, 1) / 255]
)
def test_one_view_at_a_time_from_pictures_arrays_or_tensors(convert):
    @mt.per_view
    def roll(image, rng):
        return convert(np.ascontiguousarray(np.roll(image, rng.integers(8), axis=1)))

    image = pictures(1)[0]
    views = roll(image, 5, np.random.default_rng(0))
    shifts = np.random.default_rng(0)
    for view in views:
        expected = np.roll(image, shifts.integers(8), axis=1).transpose(2, 0, 1) / 255
        np.testing.assert_allclose(view, expected, atol=1e-6)


def test_per_view_and_batched_forms_of_one_augmentation_agree():
    def flip_all(image, n, rng):
        one = torch.from_numpy(image).permute(2, 0, 1) / 255
        return torch.stack([one.flip(2) if rng.random() < 0.5 else one for _ in range(n)])

    def flip_one(image, rng):
        return image[:, ::-1] if rng.random() < 0.5 else image

    answers = [
        mt.Memo(build_classifier("group-norm"), n_views=6, lr=0.05, augment=augment).predict(pictures(1)[0])
        for augment in (flip_all, mt.per_view(flip_one))
    ]
    torch.testing.assert_close(answers[0].logits, answers[1].logits)


def test_an_augmentation_gets_the_fitted_image_or_the_whole_one():
    shapes = []

    def look(image, n, rng):
        shapes.append(image.shape)
        return torch.rand(n, 3, 8, 8)

    wide = np.zeros((20, 30, 3), np.uint8)
    augment: Any = look
    mt.Memo(build_classifier("group-norm"), n_views=2, augment=augment).predict(wide)
    augment.whole_image = True
    mt.Memo(build_classifier("group-norm"), n_views=2, augment=augment).predict(wide)
    assert shapes == [(8, 8, 3), (20, 30, 3)]


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (
            lambda image, n, rng: torch.rand(n - 1, 3, 8, 8),
            r"expected a tensor of 4 views, got \[3, 3, 8, 8\]",
        ),
        (lambda image, n, rng: [1] * n, "expected a tensor of 4 views, got list"),
        (mt.per_view(lambda image, rng: "view"), "expected a tensor, array or PIL image, got str"),
        (mt.per_view(lambda image, rng: torch.rand(int(rng.integers(1, 9)))), "expected views of one shape"),
    ],
)
def test_an_augmentation_that_gives_no_views_is_an_error(augment, message):
    with pytest.raises(InputError, match=message):
        mt.Memo(build_classifier("group-norm"), n_views=4, augment=augment).predict(pictures(1)[0])


def test_names_of_augmentations_are_for_images():
    with pytest.raises(mt.MemoError, match="'augmix' is for images, and this classifier takes tensors"):
        mt.Memo(mt.Classifier(torch.nn.Linear(4, 3)))
