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
from memo_tta.methods.reliable import ReliableSteps
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


OPEN: dict[str, Any] = {"lr": LR, "entropy_limit": 1.0}


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_goes_on_after_pickling(name):
    images = pictures(12)
    expected = mt.method(name, build_classifier("batch-norm"), batch_size=3, **OPEN).predict(images)
    robust = mt.method(name, build_classifier("batch-norm"), batch_size=3, **OPEN)
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
    robust = mt.method(name, build_classifier("batch-norm"), online=False, **OPEN)
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
    eta, sar = (mt.method(name, classifier).options for name in ("eta", "sar"))
    assert (eta.entropy_limit, eta.redundancy) == (0.4, 0.4)
    assert METHODS["eta"].resolve({}, {}, 224).redundancy == 0.05  # pyright: ignore
    assert (sar.entropy_limit, sar.rho, sar.recover_below) == (0.4, 0.05, 0.2)
