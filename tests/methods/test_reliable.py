"""ETA and SAR, compared with plain scripts that follow their papers; options of Tent's successors."""

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax, xlogy
from torch import nn

import memo_tta as mt
from memo_tta.errors import ConfigError
from memo_tta.methods import METHODS
from memo_tta.methods.deyo import shuffle_patches
from memo_tta.methods.reliable import ReliableSteps
from memo_tta.seeding import sample_rng
from tests.nets import CLASSES, build_classifier, everything, pictures

LR = 0.05
NAMES = [name for name, entry in METHODS.items() if issubclass(entry.method, ReliableSteps)]
LOG_K = math.log(CLASSES)


def inputs(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


class PlainModel:
    """A copy of a network with batch norm in training mode and without buffers, and torch's SGD."""

    def __init__(self, module: nn.Module, lr: float, frozen: int = 0):
        self.module = copy.deepcopy(module).eval().requires_grad_(False)
        layers = [m for m in self.module.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
        for layer in layers:
            layer.train()
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
        chosen = layers[: len(layers) - frozen]
        self.parameters = [p.requires_grad_() for layer in chosen for p in (layer.weight, layer.bias)]
        self.source = [p.detach().clone() for p in self.parameters]
        self.rule = torch.optim.SGD(self.parameters, lr=lr, momentum=0.9)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)

    def gradients(self, loss: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, self.parameters))

    def descend(self, gradients: list[torch.Tensor]) -> None:
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        self.rule.step()


def entropies(logits: torch.Tensor) -> torch.Tensor:
    p = logits.softmax(1)
    return -(p * p.log()).sum(1)


def plain_eta(
    module: nn.Module, batches: list[torch.Tensor], limit: float, redundancy: float
) -> tuple[list[torch.Tensor], list[int]]:
    """Return the logits of each batch, and from how many of its points the model learnt."""
    model, average = PlainModel(module, LR), None
    answers, counts = [], []
    for x in batches:
        logits = model(x)
        answers.append(logits.detach())
        found = logits.detach().double().numpy()
        p = softmax(found, axis=1)
        chosen, weights = [], []
        for i, row in enumerate(p):
            e = -xlogy(row, row).sum()
            if e >= limit:
                continue
            if average is not None:
                cosine = row @ average / np.sqrt((row @ row) * (average @ average))
                if abs(cosine) >= redundancy:
                    continue
            chosen.append(i)
            weights.append(1 / math.exp(e - limit))
        counts.append(len(chosen))
        if chosen:
            loss = sum(w * entropies(logits)[i] for w, i in zip(weights, chosen, strict=True)) / len(chosen)
            assert isinstance(loss, torch.Tensor)
            model.descend(model.gradients(loss))
            mean = p[chosen].mean(axis=0)
            average = mean if average is None else 0.9 * average + 0.1 * mean
    return answers, counts


@pytest.mark.parametrize(("share", "redundancy"), [(1.0, 1.0), (0.95, 0.97), (0.9, 0.98)])
def test_eta_equals_the_plain_script(share, redundancy):
    classifier, batches = build_classifier("batch-norm"), [inputs(8, seed) for seed in range(4)]
    expected, counts = plain_eta(classifier.module, batches, share * LOG_K, redundancy)
    if redundancy < 1:
        assert any(0 < count < 8 for count in counts), counts
    robust = mt.method("eta", classifier, lr=LR, batch_size=8, entropy_limit=share, redundancy=redundancy)
    torch.testing.assert_close(robust(torch.cat(batches)), torch.cat(expected), rtol=1e-4, atol=1e-5)


def plain_sar(
    module: nn.Module, batches: list[torch.Tensor], limit: float, rho: float, recover: float, frozen: int
) -> tuple[list[torch.Tensor], int]:
    """Return the logits of each batch, and how often the model was reset."""
    model, average, resets = PlainModel(module, LR, frozen), None, 0
    answers = []
    for x in batches:
        logits = model(x)
        answers.append(logits.detach())
        first = entropies(logits) < limit
        if not first.any():
            continue
        gradients = model.gradients(entropies(logits)[first].mean())
        length = math.sqrt(sum(float((g.double() ** 2).sum()) for g in gradients))
        with torch.no_grad():
            moves = [g * rho / length for g in gradients]
            before = [p.clone() for p in model.parameters]
            for parameter, move in zip(model.parameters, moves, strict=True):
                parameter += move
        uphill = entropies(model(x))
        both = first & (uphill < limit)
        gradients = model.gradients(uphill[both].mean()) if both.any() else None
        with torch.no_grad():
            for parameter, value in zip(model.parameters, before, strict=True):
                parameter.copy_(value)
        if gradients is None:
            continue
        model.descend(gradients)
        loss = float(uphill[both].mean().detach())
        average = loss if average is None else 0.9 * average + 0.1 * loss
        if average < recover:
            model, average, resets = PlainModel(module, LR, frozen), None, resets + 1
    return answers, resets


@pytest.mark.parametrize(
    ("share", "rho", "recover", "freeze"),
    [(1.0, 0.05, 0.0, 0.0), (0.95, 0.3, 0.0, 0.5), (0.9, 0.05, 1.42, 0.0), (1.0, 0.0, 0.0, 0.6)],
)
def test_sar_equals_the_plain_script(share, rho, recover, freeze):
    classifier, batches = build_classifier("batch-norm"), [inputs(8, seed) for seed in range(5)]
    frozen = int(2 * freeze)  # of the two layers
    expected, resets = plain_sar(classifier.module, batches, share * LOG_K, rho, recover, frozen)
    assert (resets > 0) == (recover > 0)
    options = {"rho": rho, "recover_below": recover, "freeze": freeze, "entropy_limit": share}
    robust = mt.method("sar", classifier, lr=LR, batch_size=8, **options)
    torch.testing.assert_close(robust(torch.cat(batches)), torch.cat(expected), rtol=1e-4, atol=1e-5)


def test_sar_on_a_flat_step_is_tent_on_reliable_points():
    """Without the move uphill and the recovery, all points reliable, and all layers adapted."""
    x = torch.cat([inputs(8, seed) for seed in range(3)])
    options = {"rho": 0, "recover_below": 0, "freeze": 0, "entropy_limit": 1.0}
    sar = mt.method("sar", build_classifier("batch-norm"), lr=LR, batch_size=8, **options)
    tent = mt.method("tent", build_classifier("batch-norm"), lr=LR, batch_size=8)
    torch.testing.assert_close(sar(x), tent(x), rtol=1e-5, atol=1e-6)


def plain_deyo(
    module: nn.Module, batches: list[torch.Tensor], orders: list[list[np.ndarray]], share: float, limit: float
) -> tuple[list[torch.Tensor], list[int]]:
    """Return the logits of each batch, and from how many of its points the model learnt."""
    model, answers, counts = PlainModel(module, LR), [], []
    for x, permutations in zip(batches, orders, strict=True):
        logits = model(x)
        answers.append(logits.detach())
        sure = [i for i, e in enumerate(entropies(logits)) if e < share * LOG_K]
        destroyed = x[sure].clone()
        for image, i in zip(destroyed, sure, strict=True):
            for to, origin in enumerate(permutations[i]):  # patches of 2 x 2 pixels, row by row
                (a, b), (c, d) = divmod(to, 4), divmod(int(origin), 4)
                patch = x[i, :, 2 * c : 2 * c + 2, 2 * d : 2 * d + 2]
                image[:, 2 * a : 2 * a + 2, 2 * b : 2 * b + 2] = patch
        with torch.no_grad():
            after = model(destroyed).softmax(1)
        losses = []
        for row, i in enumerate(sure):
            label = int(logits[i].argmax())
            p, e = logits[i].detach().softmax(0), entropies(logits)[i]
            drop = float(p[label] - after[row, label])
            if drop > limit:
                losses.append(e * (1 / math.exp(float(e.detach()) - 0.4 * LOG_K) + 1 / math.exp(-drop)))
        counts.append(len(losses))
        if losses:
            model.descend(model.gradients(torch.stack(losses).mean()))
    return answers, counts


@pytest.mark.parametrize(("share", "limit"), [(1.0, -1.0), (0.94, 0.0), (0.96, 0.02)])
def test_deyo_equals_the_plain_script(share, limit):
    classifier, images = build_classifier("batch-norm"), pictures(24)
    x = torch.stack([classifier.point(image).x for image in images])
    permutations = [sample_rng(0, i).permutation(16) for i in range(24)]
    orders = [[permutations[start + i] for i in range(8)] for start in range(0, 24, 8)]
    expected, counts = plain_deyo(classifier.module, list(x.split(8)), orders, share, limit)
    assert counts == [8, 8, 8] if limit < 0 else all(0 < count < 8 for count in counts)
    robust = mt.method("deyo", classifier, lr=LR, batch_size=8, entropy_limit=share, drop_limit=limit)
    found = torch.stack([p.logits for p in robust.predict(images, sample_id=range(24))])
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(8, 12), (9, 14), (32, 32)])
def test_shuffled_patches_are_those_of_the_image(height, width):
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    image = torch.arange(height * width * 3.0).reshape(1, 3, height, width).expand(2, -1, -1, -1)
    found = shuffle_patches(image, 4, rngs)
    assert found.shape == image.shape and not torch.equal(found[0], found[1])
    if height % 4 == width % 4 == 0:
        assert torch.equal(found[0].flatten().sort().values, image[0].flatten().sort().values)
        # Each patch is somewhere as it was.
        patch = image[0, :, : height // 4, : width // 4]
        places = found[0].unfold(1, height // 4, height // 4).unfold(2, width // 4, width // 4)
        assert (places == patch[:, None, None]).all(dim=(0, 3, 4)).sum() == 1
    torch.testing.assert_close(found.mean(), image.mean(), rtol=0.02, atol=0)


def test_deyo_is_for_images():
    classifier = build_classifier("batch-norm")
    with pytest.raises(ConfigError, match="deyo: shuffles the patches of images"):
        mt.method("deyo", mt.Classifier(classifier.module))


@pytest.mark.parametrize(("freeze", "left"), [(0, 4), (0.25, 4), (0.5, 2), (0.99, 2)])
def test_the_last_norm_layers_keep_their_weights(freeze, left):
    robust: Any = mt.method("sar", build_classifier("batch-norm"), freeze=freeze)
    assert len(robust._parameters) == left
    layers = [m for m in robust.classifier.module.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert robust._parameters[0] is layers[0].weight
    everywhere: Any = mt.method("sar", build_classifier("batch-norm"), params="all")
    assert len(everywhere._parameters) == len(list(everywhere.classifier.module.parameters()))
    with pytest.raises(ConfigError, match="freeze: has no effect with params='all'"):
        mt.method("sar", build_classifier("batch-norm"), params="all", freeze=0.5)


@pytest.mark.parametrize("name", NAMES)
def test_without_reliable_points_the_model_stays_as_it_is(name):
    robust = mt.method(name, build_classifier("group-norm"), lr=LR, entropy_limit=1e-6)
    for _ in range(2):
        for prediction in robust.predict(pictures(4)):
            assert prediction.adapted and torch.equal(prediction.logits, prediction.source.logits)


def opened(name: str) -> dict[str, Any]:
    """Return options with which a method takes strong steps on all points."""
    return {"lr": LR, "entropy_limit": 1.0, **({"drop_limit": -1.0} if name == "deyo" else {})}


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_goes_on_after_pickling(name):
    images = pictures(12)
    expected = mt.method(name, build_classifier("batch-norm"), batch_size=3, **opened(name)).predict(images)
    robust = mt.method(name, build_classifier("batch-norm"), batch_size=3, **opened(name))
    before, found = everything(robust.classifier.module), []
    for start in range(0, 12, 3):
        found += robust.predict(images[start : start + 3])
        assert everything(robust.classifier.module) == before
        robust = pickle.loads(pickle.dumps(robust))
        before = everything(robust.classifier.module)
    assert robust.online
    for ours, wanted in zip(found, expected, strict=True):
        assert torch.equal(ours.logits, wanted.logits)


@pytest.mark.parametrize("name", NAMES)
def test_episodic_batches_do_not_depend_on_each_other(name):
    robust = mt.method(name, build_classifier("batch-norm"), online=False, **opened(name))
    x, other = inputs(8), inputs(8, 1)
    first = robust(x)
    robust(other)
    assert torch.equal(robust(x), first) and not robust.online


def test_defaults_are_the_papers():
    classifier = build_classifier("batch-norm")
    for name in NAMES:
        options = mt.method(name, classifier).options
        assert (options.batch_size, options.lr, options.momentum) == (64, 0.00025, 0.9)
        assert (options.params, options.prior_strength, options.online) == ("norm", 0, True)
    eta, sar, deyo = (mt.method(name, classifier).options for name in ("eta", "sar", "deyo"))
    assert (deyo.entropy_limit, deyo.drop_limit, deyo.patches) == (0.5, 0.2, 4)
    assert (eta.entropy_limit, eta.redundancy) == (0.4, 0.4)
    assert METHODS["eta"].resolve({}, {}, 224).redundancy == 0.05  # pyright: ignore
    assert (sar.entropy_limit, sar.rho, sar.recover_below) == (0.4, 0.05, 0.2)
