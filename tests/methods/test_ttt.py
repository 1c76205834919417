"""Test-time training, compared with plain scripts."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError
from memo_tta.methods import METHODS
from memo_tta.models.networks.resnet26_joint import JointResNet26, turn
from memo_tta.seeding import sample_rng
from memo_tta.views import CropFlip
from tests.nets import build_classifier, pictures


def test_steps_equal_a_plain_script():
    classifier, image = build_classifier("rotation"), pictures(1)[0]
    ours = METHODS["ttt"](classifier, lr=0.05, steps=2, n_views=8).predict(image, sample_id="a")

    module = copy.deepcopy(classifier.module).eval().requires_grad_(True)
    assert isinstance(module, JointResNet26)
    rule, rng = torch.optim.SGD(module.parameters(), lr=0.05), sample_rng(0, "a")
    for _ in range(2):
        views = classifier.normalise(CropFlip(8)(image, 8, rng))
        turns = torch.from_numpy(rng.integers(4, size=8))
        rule.zero_grad(set_to_none=True)
        F.cross_entropy(module.rotation_logits(turn(views, turns)), turns).backward()
        rule.step()
    with torch.no_grad():
        expected = module(classifier.point(image).x[None])[0]
    torch.testing.assert_close(ours.logits, expected, rtol=1e-4, atol=1e-5)
    assert ours.adapted


def test_the_main_head_is_untouched_and_the_trunk_and_branch_are_adapted():
    classifier = build_classifier("rotation")
    before = {name: p.detach().clone() for name, p in classifier.module.named_parameters()}
    changed = set()

    def record(module, _):
        changed.update(n for n, p in module.named_parameters() if not torch.equal(p, before[n]))

    robust = METHODS["ttt"](classifier, lr=0.1, n_views=4)
    classifier.module.register_forward_pre_hook(record)
    robust.predict(pictures(1)[0])
    tops = {name.split(".")[0] for name in changed}
    assert tops == {"conv1", "layer1", "layer2", "rotation"}


def test_chunks_give_the_same_answer():
    classifier, image = build_classifier("rotation"), pictures(1)[0]
    answers = [
        METHODS["ttt"](classifier, lr=0.05, n_views=8, micro_batch=m).predict(image) for m in (None, 3)
    ]
    torch.testing.assert_close(answers[0].logits, answers[1].logits, rtol=1e-4, atol=1e-5)


class BatchNormRotation(nn.Module):
    """Two heads on a trunk with batch norm."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8)
        self.head, self.rotation = nn.Linear(8, 5), nn.Linear(8, 4)

    def trunk(self, x):
        return self.norm(self.conv(x)).relu().mean(dim=(2, 3))

    def forward(self, x):
        return self.head(self.trunk(x))

    def rotation_logits(self, x):
        return self.rotation(self.trunk(x))


@pytest.mark.parametrize("chunk", [1, 3, 5])
def test_chunks_mix_the_statistics_of_the_point(chunk):
    """Statistics are fixed during the step, and those of the adapted model when predicting."""
    torch.manual_seed(0)
    module, n, lr, image = BatchNormRotation().eval(), 4, 0.5, pictures(1)[0]
    classifier = mt.Classifier(module, size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    options = {"lr": lr, "n_views": 6, "prior_strength": n, "micro_batch": chunk}
    ours = METHODS["ttt"](classifier, **options).predict(image, sample_id="a")

    x, rng, reference = classifier.point(image).x[None], sample_rng(0, "a"), copy.deepcopy(module)
    views = classifier.normalise(CropFlip(8)(image, 6, rng))
    turns = torch.from_numpy(rng.integers(4, size=6))

    mean, var = module.norm.running_mean, module.norm.running_var
    assert mean is not None and var is not None

    def mix():
        with torch.no_grad():
            seen = reference.conv(x)
            reference.norm.running_mean = (n * mean + seen.mean(dim=(0, 2, 3))) / (n + 1)
            reference.norm.running_var = (n * var + seen.var(dim=(0, 2, 3))) / (n + 1)

    mix()
    F.cross_entropy(reference.rotation_logits(turn(views, turns)), turns).backward()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter -= 0 if parameter.grad is None else lr * parameter.grad
        mix()
        expected = reference(x)[0]
    torch.testing.assert_close(ours.logits, expected, rtol=1e-4, atol=1e-5)


def test_a_model_without_a_rotation_head_is_told_what_to_train():
    with pytest.raises(ConfigError, match=r"ttt: GroupNormNet has no rotation head.*memo train --joint"):
        METHODS["ttt"](build_classifier("group-norm"))


def test_defaults_are_the_published_ones():
    options = METHODS["ttt"](build_classifier("rotation", lr=9.0, n_views=3)).options
    assert (options.lr, options.n_views, options.steps, options.augment) == (0.001, 32, 1, "standard")


def test_memo_works_on_a_joint_model_too():
    prediction = mt.Memo(build_classifier("rotation"), n_views=4).predict(pictures(1)[0])
    assert prediction.adapted and np.isfinite(prediction.entropy)
