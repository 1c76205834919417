"""MEMO against published results and plain scripts, and the options that change what it does."""

import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import memo_tta as mt
from memo_tta.errors import InputError
from memo_tta.methods.gradient import ForwardPass
from memo_tta.models.batch_norm import MixedStatistics
from memo_tta.models.networks.resnet import resnet18
from memo_tta.objectives import OBJECTIVES, marginal_entropy
from tests.nets import CLASSES, build_classifier, last_linear, pictures, view_method


class Watched(mt.Memo):
    """MEMO that records the weights of its prediction."""

    def predict_adapted(self, views: Tensor, x: Tensor, statistics: MixedStatistics) -> Tensor:
        self.adapted_weights = [p.detach().clone() for p in self.parameters]
        return super().predict_adapted(views, x, statistics)

    def update_l2(self) -> float:
        pairs = zip(self.parameters, self.adapted_weights, strict=True)
        return math.sqrt(sum(float(((p.detach() - w).double() ** 2).sum()) for p, w in pairs))


R26 = {
    "r26_sgd": {"optimizer": "sgd", "lr": 0.005},
    "r26_adamw": {"optimizer": "adamw", "lr": 1e-5, "weight_decay": 0.01},
}


@pytest.mark.parametrize("case", R26)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_resnet26_steps_are_the_published_ones(golden, reference, case, dtype):
    facts, vectors = golden.json("memo_steps")[case], golden.arrays("memo_steps")
    views = golden.arrays("augmix_views_cifar")
    classifier = mt.load("resnet26", weights=reference / "checkpoints/resnet26_gn.npz")
    classifier.module.to(dtype)
    robust = Watched(classifier, n_views=8, **R26[case])
    prediction = robust.predict_views(classifier.point(views["image"]).x, torch.from_numpy(views["views"]))
    exact = dtype == torch.float64
    assert prediction.marginal_entropy == pytest.approx(facts["losses"][0], rel=1e-7 if exact else 1e-6)
    assert robust.update_l2() == pytest.approx(facts["update_l2"], rel=1e-6 if exact else 1e-4)
    # In float32 the order of summation matters; it depends on memory layout and processor.
    tolerance = 2e-6 if exact else 20 * facts["f32_vs_f64_after"]
    for ours, name in ((prediction.source.logits, "before"), (prediction.logits, "after")):
        np.testing.assert_allclose(ours.numpy(), vectors[f"{case}__logits_{name}"], rtol=0, atol=tolerance)
    assert (prediction.source.index, prediction.index) == (facts["argmax_before"], facts["argmax_after"])
    assert prediction.adapted


@pytest.mark.parametrize("case", ["rn18_sgd", "rn18_sgd_rendition"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_resnet18_steps_with_batch_norm_mixing_are_the_published_ones(golden, case, dtype):
    facts, vectors = golden.json("memo_steps")[case], golden.arrays("memo_steps")
    module = resnet18()
    golden.rule_weights(module)
    classifier = mt.Classifier(module.to(dtype), size=224, mean=(0.5,) * 3, std=(0.5,) * 3)
    classes = list(range(1000))
    if case.endswith("rendition"):
        classes = golden.json("constants/imagenet_r_wnids")["indices_in_1k"]
        classifier = classifier.subset(classes)
    views = golden.rule_input("memo_resnet18/aug", (8, 3, 224, 224))
    x = golden.rule_input("memo_resnet18/test", (1, 3, 224, 224))
    robust = Watched(classifier, optimizer="sgd", lr=0.00025, prior_strength=16)
    prediction = robust.predict_views(x, views)
    exact = dtype == torch.float64
    assert prediction.marginal_entropy == pytest.approx(facts["loss"], rel=1e-9 if exact else 1e-6)
    assert robust.update_l2() == pytest.approx(facts["update_l2"], rel=1e-8 if exact else 1e-5)
    tolerance = 1e-9 if exact else 5 * facts["f32_vs_f64_after"]
    for ours, name in ((prediction.source.logits, "plain_eval"), (prediction.logits, "after")):
        published = vectors[f"{case}__logits_{name}"]
        published = published[classes] if len(published) == 1000 else published
        np.testing.assert_allclose(ours.numpy(), published, rtol=0, atol=tolerance)
    before = mt.methods.METHODS["bn1"](classifier)(x)[0].numpy()
    published = vectors[f"{case}__logits_before"]
    published = published[classes] if len(published) == 1000 else published
    np.testing.assert_allclose(before, published, rtol=0, atol=tolerance)


def torch_reference(classifier, x, views, objective, optimizer, steps):
    """Return the logits of a plain script: MEMO with torch.optim on a module without batch norm."""
    module = classifier.module.eval().requires_grad_(True)
    rule = optimizer(module.parameters())
    for _ in range(steps):
        rule.zero_grad()
        objective(module(views)).backward()
        rule.step()
    return module(x).detach()[0]


OPTIMIZERS = {
    "sgd": lambda **options: lambda p: torch.optim.SGD(p, lr=0.05, **options),
    "adam": lambda **options: lambda p: torch.optim.Adam(p, lr=0.05, **options),
    "adamw": lambda **options: lambda p: torch.optim.AdamW(p, lr=0.05, **options),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_three_steps_equal_torch_optim(objective, name, decay, momentum):
    extra = {"momentum": momentum} if name == "sgd" else {}
    classifier = build_classifier("transformer")
    x, views = torch.randn(1, 3, 8, 8), torch.randn(6, 3, 8, 8)
    ours = mt.Memo(
        classifier,
        objective=objective,
        optimizer=name,
        lr=0.05,
        weight_decay=decay,
        steps=3,
        **extra,
    ).predict_views(x, views)
    expected = torch_reference(
        build_classifier("transformer"),
        x,
        views,
        OBJECTIVES[objective],
        OPTIMIZERS[name](weight_decay=decay, **extra),
        steps=3,
    )
    torch.testing.assert_close(ours.logits, expected, rtol=1e-4, atol=1e-4)


def carrying(carry):
    robust = mt.Memo(
        build_classifier("group-norm"), n_views=4, optimizer="adamw", lr=0.01, carry_optimizer=carry
    )
    return robust, *pictures(2)


def test_optimizer_state_never_leaks_unless_asked_for():
    robust, first, second = carrying(False)
    alone = robust.predict(second).logits
    robust.predict(first)
    assert torch.equal(robust.predict(second).logits, alone) and not robust.online
    robust, first, second = carrying(True)
    robust.predict(first)
    assert robust.online and not torch.equal(robust.predict(second).logits, alone)
    robust.reset()
    assert torch.equal(robust.predict(second).logits, alone)


def test_all_means_every_parameter():
    robust = Watched(build_classifier("transformer"), n_views=4, lr=0.1)
    robust.predict(pictures(1)[0])
    for (name, p), adapted in zip(
        robust.classifier.module.named_parameters(), robust.adapted_weights, strict=True
    ):
        assert not torch.equal(p, adapted), name


@pytest.mark.parametrize("net", ["group-norm", "batch-norm", "transformer"])
@given(views=st.integers(2, 9), chunk=st.integers(1, 9), seed=st.integers(0, 99))
def test_chunked_gradient_is_the_full_one(net, views, chunk, seed):
    classifier = build_classifier(net)
    module = classifier.module.eval().requires_grad_(True).double()
    x = torch.randn(views, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    parameters = list(module.parameters())
    gradients = []
    for micro_batch in (None, chunk):
        forward = ForwardPass(classifier, x, micro_batch)
        gradients.append(forward.gradient(marginal_entropy(forward.logits), parameters))
    for full, chunked in zip(*gradients, strict=True):
        torch.testing.assert_close(full, chunked, rtol=1e-9, atol=1e-12)


def test_micro_batches_with_batch_norm_take_statistics_from_the_point():
    x, views = torch.randn(1, 3, 8, 8), torch.randn(6, 3, 8, 8)
    answers = [
        mt.Memo(build_classifier("dropout"), lr=0.05, micro_batch=m).predict_views(x, views).logits
        for m in (None, 1, 4, 6, 100)
    ]
    assert not torch.allclose(answers[0], answers[1], atol=1e-4)
    torch.testing.assert_close(answers[2], answers[1], rtol=1e-5, atol=1e-5)
    for answer in answers[3:]:  # all views fit
        torch.testing.assert_close(answer, answers[0], rtol=0, atol=0)


def test_micro_batches_predict_with_the_statistics_of_the_adapted_model():
    """Statistics are those of the point: fixed during the step, and of the adapted model when predicting."""
    x, views = torch.randn(2, 3, 8, 8), torch.randn(6, 3, 8, 8)
    classifier, lr, n = build_classifier("batch-norm"), 0.5, 16
    module = deepcopy(classifier.module).eval().requires_grad_(True)
    assert isinstance(module, nn.Sequential)
    # BatchNorm1d sees one value per channel, which has no variance, so it keeps its own statistics.
    layers = [layer for layer in module if isinstance(layer, nn.BatchNorm2d)]
    running = [(layer, deepcopy(layer.running_mean), deepcopy(layer.running_var)) for layer in layers]

    def mix():
        """Set the mixed statistics of the point, layer by layer."""
        for layer, mean, var in running:
            assert mean is not None and var is not None
            with torch.no_grad():
                seen = nn.Sequential(*list(module)[: list(module).index(layer)])(x[:1])
            layer.running_mean = (n * mean + seen.mean(dim=(0, 2, 3))) / (n + 1)
            layer.running_var = (n * var + seen.var(dim=(0, 2, 3))) / (n + 1)

    mix()
    marginal_entropy(module(views)).backward()
    with torch.no_grad():
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter -= lr * parameter.grad
    mix()
    expected = module(x[:1])[0].detach()
    ours = mt.Memo(classifier, lr=lr, prior_strength=n, micro_batch=2).predict_views(x[:1], views)
    torch.testing.assert_close(ours.logits, expected, rtol=1e-4, atol=1e-5)


def test_the_objective_that_runs_is_the_one_of_the_table():
    for name, function in OBJECTIVES.items():
        assert mt.Memo(build_classifier("group-norm"), objective=name).objective is function


def test_select_adapts_on_the_most_confident_views():
    classifier = build_classifier("group-norm")
    x, views = torch.randn(1, 3, 8, 8), torch.randn(8, 3, 8, 8) * torch.linspace(0.1, 4, 8).view(8, 1, 1, 1)
    with torch.no_grad():
        p = classifier.module.eval()(views).softmax(1)
    lowest = (-(p * p.log()).sum(1)).argsort()[:2]
    chosen = mt.Memo(classifier, lr=0.05, select=0.25).predict_views(x, views)
    alone = mt.Memo(classifier, lr=0.05).predict_views(x, views[lowest])
    torch.testing.assert_close(chosen.logits, alone.logits, rtol=1e-5, atol=1e-6)


def test_marginal_prediction_averages_the_adapted_models_views():
    classifier = build_classifier("group-norm")
    x, views = torch.randn(1, 3, 8, 8), torch.randn(5, 3, 8, 8)
    answer = mt.Memo(classifier, lr=1e-30, predict="marginal").predict_views(x, views)
    with torch.no_grad():
        average = classifier.module.eval()(views).softmax(1).mean(0)
    torch.testing.assert_close(answer.probabilities.float(), average, rtol=1e-5, atol=1e-6)
    tta = view_method("tta", classifier).predict_views(x, views)
    torch.testing.assert_close(tta.probabilities.float(), average, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["memo", "memo-pce", "memo-ce", "tta", "tent-bs1"])
def test_classes_that_the_module_masks_with_minus_infinity_stay_out(method):
    classifier = build_classifier("group-norm")
    mask = torch.tensor([0, -math.inf, 0, 0, -math.inf])

    def mask_classes(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output + mask

    classifier.module.register_forward_hook(mask_classes)
    prediction = mt.methods.METHODS[method](classifier).predict(pictures(1)[0])
    assert prediction.adapted == (method != "tta") and "finite" not in (prediction.reason or "")
    assert prediction.probabilities[[1, 4]].tolist() == [0, 0]
    assert prediction.probabilities.sum() == pytest.approx(1)


def test_every_step_draws_new_views():
    drawn = []

    def augment(image, n, rng):
        drawn.append(torch.from_numpy(rng.random((n, 3, 8, 8))).float())
        return drawn[-1]

    mt.Memo(build_classifier("group-norm"), n_views=2, steps=3, augment=augment).predict(pictures(1)[0])
    assert len(drawn) == 3 and not torch.equal(drawn[0], drawn[1])


def test_sample_id_decides_the_views():
    robust = mt.Memo(build_classifier("group-norm"), n_views=4, lr=0.1)
    image = pictures(1)[0]
    first, again, other = (robust.predict(image, sample_id=name).logits for name in (7, 7, 8))
    assert torch.equal(first, again) and not torch.equal(first, other)
    with pytest.raises(InputError, match="one for each of 1 images, got 2"):
        robust.predict([image], sample_id=[1, 2])


def test_prior_strength_without_norm_layers_warns_only_who_asked():
    classifier = build_classifier("group-norm")
    mt.Memo(classifier)
    with pytest.warns(mt.MemoWarning, match="no layer with running statistics, so nothing is mixed"):
        robust = mt.Memo(classifier, prior_strength=16, n_views=4)
    assert torch.equal(
        robust.predict(pictures(1)[0]).logits, mt.Memo(classifier, n_views=4).predict(pictures(1)[0]).logits
    )


class NetWithUnusedLayer(nn.Module):
    """A linear classifier with a layer that the logits do not depend on."""

    def __init__(self):
        super().__init__()
        self.head, self.unused = nn.Linear(192, CLASSES), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))


def test_a_user_objective_and_unused_parameters():
    classifier = mt.Classifier(NetWithUnusedLayer(), size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    robust = mt.Memo(classifier, n_views=4, objective=lambda logits: logits.var(), optimizer="adamw")
    assert robust.predict(pictures(1)[0]).adapted


def test_parameters_that_do_not_reach_the_logits_are_an_error():
    classifier = mt.Classifier(NetWithUnusedLayer(), size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    with pytest.raises(mt.MemoError, match="params: the logits do not depend on the chosen parameters"):
        mt.Memo(classifier, n_views=4, params="unused").predict(pictures(1)[0])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_views_may_be_given_in_any_gradient_mode(mode):
    views = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    robust = mt.Memo(build_classifier("group-norm"), lr=0.05)
    expected = robust.predict_views(views[0], views[1:])
    with mode():
        given = views.clone()
        ours = robust.predict_views(given[0], given[1:])
    assert ours.adapted and torch.equal(ours.logits, expected.logits)


def test_an_adapted_model_whose_logits_are_not_finite_says_so():
    classifier = build_classifier("group-norm")
    head = last_linear(classifier)
    bias = head.bias.detach().clone()

    def spoil(module, _inputs, output):
        is_adapted = not torch.equal(head.bias, bias)
        return output * math.nan if is_adapted else output

    classifier.module.register_forward_hook(spoil)
    prediction = mt.Memo(classifier, n_views=4, lr=0.05).predict(pictures(1)[0])
    assert (prediction.status, prediction.adapted) == ("not_finite", False)
    assert prediction.reason == "the adapted model's logits are not finite"
    assert torch.equal(prediction.logits, prediction.source.logits)


def test_given_views_must_fit():
    robust = mt.Memo(build_classifier("group-norm"))
    with pytest.raises(InputError, match="expected one input, got 2"):
        robust.predict_views(torch.zeros(2, 3, 8, 8), torch.zeros(4, 3, 8, 8))
    with pytest.raises(InputError, match=r"expected views \[B, 3, 8, 8\], got \[0, 3, 8, 8\]"):
        robust.predict_views(torch.zeros(3, 8, 8), torch.zeros(0, 3, 8, 8))
    with pytest.raises(InputError, match=r"expected a normalised float tensor \[N, 3, 8, 8\]"):
        robust(torch.zeros(1, 3, 9, 9))
    with pytest.raises(InputError, match="at least one input"):
        robust(torch.zeros(0, 3, 8, 8))


def test_a_prediction_with_the_source_is_the_average_of_both():
    classifier, image = build_classifier("batch-norm"), pictures(1)[0]
    options: dict[str, Any] = {"n_views": 4, "lr": 0.05, "seed": 3}
    adapted = mt.Memo(classifier, **options).predict(image)
    both = mt.Memo(classifier, predict="with_source", **options).predict(image)
    expected = (adapted.probabilities + adapted.source.probabilities) / 2
    assert not torch.allclose(expected, adapted.probabilities, atol=1e-3)
    torch.testing.assert_close(both.probabilities, expected)


def with_shift(shift: float | None, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Watched:
    """Return a method that has predicted an image, which counts as shifted by this much."""
    robust = Watched(build_classifier("batch-norm"), n_views=4, **options)
    measured = robust.source_and_shift
    monkeypatch.setattr(robust, "source_and_shift", lambda batch: (measured(batch)[0], shift))
    robust.predict(pictures(1)[0])
    return robust


@pytest.mark.parametrize(("shift", "share"), [(0.0, 0.25), (0.19, 0.25), (0.2, 1), (0.7, 1), (None, 1)])
def test_the_step_follows_the_shift(shift, share, monkeypatch):
    usual = with_shift(None, monkeypatch, lr=0.01, prior_strength=None).update_l2()
    robust = with_shift(shift, monkeypatch, lr=0.01, prior_strength=None, clean_strength=0.25)
    assert robust.update_l2() == pytest.approx(share * usual, rel=1e-4)


@pytest.mark.parametrize(("shift", "prior_strength"), [(0.1, 16), (0.7, 4), (None, 4)])
def test_mixing_follows_the_shift(shift, prior_strength, monkeypatch):
    robust = with_shift(shift, monkeypatch, lr=1e-12, prior_strength=4, clean_strength=0.25)
    mixed = mt.method("bn1", build_classifier("batch-norm"), prior_strength=prior_strength)
    image = pictures(1)[0]
    torch.testing.assert_close(robust.predict(image).logits, mixed.predict(image).logits)
