"""CoTTA, compared with a plain script that follows its paper."""

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.methods import METHODS
from memo_tta.methods.cotta import restore_some
from memo_tta.seeding import sample_rng
from tests.nets import build_classifier, everything, pictures

LR = 0.05
VIEWS = 3


def brighter(image, n, rng):
    """Return views that are the image times a random factor."""
    pixels = torch.from_numpy(image.transpose(2, 0, 1).copy()).float() / 255
    return torch.stack([(pixels * float(rng.uniform(0.5, 1.5))).clamp(max=1) for _ in range(n)])


def plain_cotta(
    classifier: mt.Classifier,
    batches: list[list[np.ndarray]],
    keep: float,
    share: float,
    below: float,
    optimizer: str,
) -> tuple[list[torch.Tensor], list[bool]]:
    """Return the teacher's probabilities for each batch, and whether they are averages over views."""
    anchor = copy.deepcopy(classifier.module).eval()
    student = copy.deepcopy(anchor).requires_grad_()
    teacher = copy.deepcopy(anchor)
    rules = {"adam": torch.optim.Adam, "sgd": partial(torch.optim.SGD, momentum=0.9)}
    rule = rules[optimizer](student.parameters(), lr=LR)
    answers, averaged = [], []
    for batch in batches:
        rngs = [sample_rng(0, f"point {image.sum()}") for image in batch]
        points = [classifier.point(image) for image in batch]
        x = torch.stack([point.x for point in points])
        with torch.no_grad():
            is_unsure = bool(anchor(x).softmax(1).max(1).values.mean() < below)
            averaged.append(is_unsure)
            wanted = teacher(x).softmax(1)
            if is_unsure:
                views = [
                    torch.cat([brighter(image, 1, rng) for image, rng in zip(batch, rngs, strict=True)])
                    for _ in range(VIEWS)
                ]
                wanted = sum(teacher(classifier.normalise(each)).softmax(1) for each in views) / VIEWS
        assert isinstance(wanted, torch.Tensor)
        answers.append(wanted)
        loss = -(wanted * student(x).log_softmax(1)).sum(1).mean()
        rule.zero_grad()
        loss.backward()
        rule.step()
        with torch.no_grad():
            for old, new, source in zip(
                teacher.parameters(), student.parameters(), anchor.parameters(), strict=True
            ):
                old.copy_(keep * old + (1 - keep) * new)
                mask = torch.from_numpy(rngs[0].random(tuple(new.shape)) < share)
                new[mask] = source[mask]
    return answers, averaged


@pytest.mark.parametrize(
    ("keep", "share", "below", "optimizer"),
    [
        (0.999, 0.01, 1.0, "adam"),
        (0.5, 0.2, 1.0, "adam"),
        (0.9, 0.1, 0.34, "adam"),
        # Here the first gradient is zero but for rounding, to which Adam gives the length of any other.
        (0.5, 0.1, 0.0, "sgd"),
    ],
)
def test_cotta_equals_the_plain_script(keep, share, below, optimizer):
    classifier = build_classifier("group-norm")
    batches = [pictures(4, seed) for seed in range(4)]
    expected, averaged = plain_cotta(classifier, batches, keep, share, below, optimizer)
    assert below not in (0.0, 1.0) or set(averaged) == {below == 1.0}
    robust = mt.method(
        "cotta",
        classifier,
        lr=LR,
        optimizer=optimizer,
        batch_size=4,
        teacher_momentum=keep,
        restore_share=share,
        augment_below=below,
        teacher_views=VIEWS,
        augment=brighter,
    )
    before = everything(classifier.module)
    for batch, wanted in zip(batches, expected, strict=True):
        ids = [f"point {image.sum()}" for image in batch]
        found = torch.stack([p.probabilities for p in robust.predict(batch, sample_id=ids)])
        torch.testing.assert_close(found.float(), wanted, rtol=1e-3, atol=1e-5)
        assert everything(classifier.module) == before


def test_both_kinds_of_teaching_were_compared():
    batches = [pictures(4, seed) for seed in range(4)]
    _, averaged = plain_cotta(build_classifier("group-norm"), batches, 0.9, 0.1, 0.34, "adam")
    assert set(averaged) == {True, False}


def test_some_numbers_are_restored():
    source, tensor = torch.zeros(200, 50), torch.ones(200, 50)
    restore_some([tensor], [source], 0.1, np.random.default_rng(0))
    assert set(tensor.unique().tolist()) == {0.0, 1.0}
    assert float((tensor == 0).float().mean()) == pytest.approx(0.1, abs=0.01)


def test_a_stream_goes_on_after_pickling_and_reset_forgets():
    images, options = pictures(9), {"lr": LR, "batch_size": 3, "teacher_views": 2, "teacher_momentum": 0.5}
    expected = mt.method("cotta", build_classifier("batch-norm"), **options).predict(images)
    robust: Any = mt.method("cotta", build_classifier("batch-norm"), **options)
    found = []
    for start in range(0, 9, 3):
        found += robust.predict(images[start : start + 3])
        robust = pickle.loads(pickle.dumps(robust))
    for ours, wanted in zip(found, expected, strict=True):
        assert torch.equal(ours.logits, wanted.logits)
    robust.reset()
    assert torch.equal(robust.predict(images[:3])[0].logits, expected[0].logits)
    assert not torch.equal(robust.predict(images[:3])[0].logits, expected[0].logits)


def test_defaults_are_the_papers():
    small = mt.method("cotta", build_classifier("batch-norm")).options
    assert (small.optimizer, small.lr, small.params) == ("adam", 0.001, "all")
    assert (small.teacher_momentum, small.restore_share, small.teacher_views) == (0.999, 0.01, 32)
    assert small.augment_below == 0.92
    large: Any = METHODS["cotta"].resolve({}, {}, 224)
    assert (large.optimizer, large.lr, large.momentum) == ("sgd", 0.01, 0.9)
    assert (large.restore_share, large.augment_below) == (0.001, 0.1)


def test_cotta_adapts_every_kind_of_network():
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    classifier = mt.Classifier(module, size=8, mean=0.5, std=0.5)
    robust = mt.method("cotta", classifier, lr=LR, teacher_views=2, teacher_momentum=0.0)
    robust.predict(pictures(4))
    for prediction in robust.predict(pictures(4)):
        assert prediction.adapted
        assert not torch.allclose(prediction.logits, prediction.source.logits, atol=1e-3)
