"""Points that share forward passes: the same predictions in fewer passes."""

import numpy as np
import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.methods.shared_passes import MAX_POINTS, MAX_VIEWS
from memo_tta.models.batch_norm import mixed_statistics, statistics_layers
from tests.nets import build_classifier, pictures

LARGE = 80  # pixels: `restore` treats images of more than 64 in another way
MIDDLE = 0.02  # a margin between those of the large pictures


def large_classifier() -> mt.Classifier:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    for layer in statistics_layers(network):
        layer.get_parameter("weight").data.normal_()
        layer.get_buffer("running_mean").normal_(std=0.1)
        layer.get_buffer("running_var").uniform_(0.4, 2)
    return mt.Classifier(network.eval(), size=LARGE, mean=(0.5,) * 3, std=(0.25,) * 3, channels_last=True)


def large_pictures(n: int) -> list[np.ndarray]:
    """Return smooth images of different contrast, some of them noisy, so that gates decide differently."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 1, LARGE)[:, None, None] * rng.uniform(0.1, 1, (n, 1, LARGE, 3))
    noise = rng.normal(0, 0.2, (n, LARGE, LARGE, 3)) * (np.arange(n) % 2)[:, None, None, None]
    return list((np.clip(ramp + noise, 0, 1) * 255).astype(np.uint8))


SMALL = ("group-norm", "batch-norm", "transformer")
CASES = [
    *(("source", net, {}) for net in SMALL),
    *(("tta", net, {"n_views": 4}) for net in SMALL),
    ("tta", "batch-norm", {"n_views": 4, "prior_strength": 16}),
    ("tta", "batch-norm", {"n_views": 4, "prior_strength": 0}),
    ("tta", "batch-norm", {"n_views": 4, "micro_batch": 3, "prior_strength": 16}),
    ("tta", "batch-norm", {"n_views": 4, "early_views": 2, "early_confidence": 0.3}),
    *(("restore", net, {}) for net in SMALL),
    ("bn1", "batch-norm", {}),
    ("bn1", "batch-norm", {"prior_strength": 2}),
    ("source", "large", {}),
    ("bn1", "large", {}),
    ("restore", "large", {}),
    ("restore", "large", {"skip_margin": MIDDLE}),
    ("restore", "large", {"skip_margin": None, "clean_views": None}),
]


@pytest.mark.parametrize(("name", "net", "options"), CASES)
def test_predictions_are_those_of_one_image_at_a_time(name, net, options):
    classifier = large_classifier() if net == "large" else build_classifier(net)
    images = large_pictures(6) if net == "large" else pictures(6)
    ids = list(range(6))
    together = mt.method(name, classifier, **options, batch_points=6).predict(images, sample_id=ids)
    alone = mt.method(name, classifier, **options, batch_points=1)
    for image, prediction, sample_id in zip(images, together, ids, strict=True):
        expected = alone.predict(image, sample_id=sample_id)
        torch.testing.assert_close(prediction.probabilities, expected.probabilities, rtol=0, atol=1e-5)
        assert (prediction.status, prediction.index) == (expected.status, expected.index)
        if expected.shift is not None:
            assert prediction.shift == pytest.approx(expected.shift, rel=1e-4)
    if name == "restore" and options.get("skip_margin") == MIDDLE:
        assert len({prediction.status for prediction in together}) == 2  # the gate tells the images apart


def test_images_share_passes():
    classifier, rows = large_classifier(), []
    classifier.module.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    mt.method("source", classifier).predict(large_pictures(5))
    assert rows == [5]
    rows.clear()
    mt.method("restore", classifier, skip_margin=1.0, clean_views=None).predict(large_pictures(5))
    assert rows == [5, 5, 10]  # the images, mirrored restorations, two half-restored versions of each


def test_how_many_share_a_pass_by_default():
    classifier = build_classifier("group-norm")
    assert mt.method("source", classifier).batch_points == MAX_POINTS
    assert mt.method("tta", classifier, n_views=MAX_VIEWS // 2).batch_points == 2
    assert mt.method("tta", classifier, n_views=MAX_VIEWS).batch_points == 1
    assert mt.method("tta", classifier, n_views=10 * MAX_VIEWS).batch_points == 1
    assert mt.method("memo", classifier).batch_points == 1
    assert mt.method("bn", build_classifier("batch-norm"), batch_size=7).batch_points == 7


def test_low_precision_does_not_share_passes_unless_told():
    classifier = build_classifier("bfloat16")
    assert mt.method("source", classifier).batch_points == 1
    assert mt.method("source", classifier, batch_points=4).batch_points == 4


def test_inputs_of_different_shapes_are_taken_one_by_one():
    def mean_and_range(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.mean(dim=1), x.amax(dim=1) - x.amin(dim=1)], dim=1)

    class Signals(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return mean_and_range(x)

    signals = [torch.randn(length, generator=torch.Generator().manual_seed(length)) for length in (5, 9, 5)]
    predictions = mt.method("source", mt.Classifier(Signals()), batch_points=3).predict(signals)
    for signal, prediction in zip(signals, predictions, strict=True):
        torch.testing.assert_close(prediction.logits, mean_and_range(signal[None])[0])


def test_an_image_that_breaks_the_network_does_not_change_the_others():
    classifier = large_classifier()
    x = torch.randn(3, 3, LARGE, LARGE, generator=torch.Generator().manual_seed(0))
    expected = mt.method("bn1", classifier)(x[:1])
    x[1] = torch.inf
    for name in ("bn1", "source"):
        together = mt.method(name, classifier)(x)
        assert together[1].isnan().all() and together[[0, 2]].isfinite().all()
    torch.testing.assert_close(mt.method("bn1", classifier)(x)[:1], expected, rtol=1e-5, atol=1e-5)


def test_groups_are_normalised_each_with_its_own_statistics():
    layer = nn.BatchNorm2d(4)
    running_mean = layer.get_buffer("running_mean").normal_()
    running_var = layer.get_buffer("running_var").uniform_(0.5, 2)
    x = torch.randn(5, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    with mixed_statistics(layer.eval(), 16, groups=[2, 3]):
        output = layer(x)
    for rows in (slice(0, 2), slice(2, 5)):
        var, mean = torch.var_mean(x[rows].double(), dim=(0, 2, 3))
        mixed_mean, mixed_var = (16 * running_mean + mean) / 17, (16 * running_var + var) / 17
        scale = (mixed_var + layer.eps).sqrt()[:, None, None]
        expected = (x[rows] - mixed_mean[:, None, None]) / scale
        torch.testing.assert_close(output[rows].double(), expected, rtol=1e-5, atol=1e-5)
    assert output.is_contiguous(memory_format=torch.channels_last)  # other layouts are slower
