"""The shift of an input from the training data, on predictions, in records, reports and the service."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import memo_tta as mt
from memo_tta.data.sample_images import load_sample, shifted
from memo_tta.methods import METHODS
from memo_tta.models.shift import CLEAN_SHIFT
from memo_tta.report.run import open_run
from tests.nets import build_classifier, everything, pictures

pytestmark = pytest.mark.filterwarnings("ignore::memo_tta.MemoWarning")


def expected_shifts(classifier: mt.Classifier, images: list[np.ndarray]) -> list[float]:
    """Compute the shift at the first of the two batch-norm layers of `BatchNormNet`, in numpy."""
    conv, norm = classifier.module.get_submodule("0"), classifier.module.get_submodule("1")
    mean, variance = (getattr(norm, name).double().numpy() for name in ("running_mean", "running_var"))
    shifts: list[float] = []
    for image in images:
        with torch.no_grad():
            y = conv(classifier.point(image).x[None]).double().numpy()[0]
        shifts.append(float(((y.mean(axis=(1, 2)) - mean) ** 2 / variance).mean()))
    return shifts


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ttt"])
def test_every_method_measures_the_shift_of_each_image(method):
    classifier, images = build_classifier("batch-norm"), pictures(3)
    predictions = mt.method(method, classifier).predict(images)
    wanted = expected_shifts(classifier, images)
    assert [p.shift for p in predictions] == pytest.approx(wanted, rel=1e-4) and len(set(wanted)) == 3
    assert [p.source.shift for p in predictions] == [p.shift for p in predictions]
    assert predictions[0].clean_shift == CLEAN_SHIFT


@pytest.mark.parametrize("net", ["group-norm", "transformer", "no-norm"])
def test_models_without_running_statistics_have_no_shift(net):
    prediction = mt.method("source", build_classifier(net)).predict(pictures(1)[0])
    assert prediction.shift is None and prediction.clean_shift is None


def test_a_shift_that_is_not_finite_is_none():
    classifier = build_classifier("batch-norm")
    with torch.no_grad():
        next(classifier.module.parameters()).fill_(float("nan"))
    assert mt.method("source", classifier).predict(pictures(1)[0]).shift is None


def test_the_first_half_of_the_layers_counts():
    """Four layers: the first is met by its own statistics, the second is two standard deviations off."""
    norms = [nn.BatchNorm2d(3) for _ in range(4)]
    classifier = mt.Classifier(
        nn.Sequential(*norms, nn.AdaptiveAvgPool2d(1), nn.Flatten()), size=8, mean=(0.5,) * 3, std=(0.5,) * 3
    )
    image = pictures(1)[0]
    x = classifier.point(image).x
    for layer, distance in zip(norms, (0, 2, 100, 100), strict=True):
        assert layer.running_mean is not None and layer.running_var is not None
        layer.running_mean.copy_(x.mean(dim=(1, 2)) - distance * 3)
        layer.running_var.fill_(9 - layer.eps)
        x = (x - layer.running_mean[:, None, None]) / 3
    assert mt.method("source", classifier).predict(image).shift == pytest.approx((0 + 4) / 2, rel=1e-4)


@pytest.mark.parametrize("name", ["noise", "blur", "low contrast"])
def test_shifted_images_show_more_of_it_than_clean_ones(name):
    source = mt.method("source", mt.load("resnet20-bn"))

    def median(shift: str) -> float:
        images = [sample.image for sample in shifted(load_sample(), shift)][:60]
        return float(np.median([prediction.shift or np.nan for prediction in source.predict(images)]))

    assert median("clean") == pytest.approx(CLEAN_SHIFT, abs=0.03)
    assert median(name) > 1.3 * median("clean")


def test_measuring_leaves_the_module_as_it_was():
    classifier = build_classifier("batch-norm")
    before = everything(classifier.module)
    source = mt.method("source", classifier)
    source.predict(pictures(1)[0])
    classifier.module.get_submodule("5").register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        source.predict(pictures(1)[0])
    assert everything(classifier.module) == before


def test_records_and_reports_have_the_shift(memo, tmp_path):
    out = tmp_path / "run"
    words = ("evaluate", "sample", "--model", "resnet20-bn", "--methods", "source", "--limit", 5)
    assert memo(*words, "--workers", 1, "--out", out)[0] == 0
    (block,) = open_run(out).blocks
    assert block.median_shift is not None
    _, text, _ = memo("report", out, "--csv", tmp_path / "rows.csv")
    assert f"median shift {block.median_shift:.2f} (clean photographs: {CLEAN_SHIFT})" in text
    header, first = (tmp_path / "rows.csv").read_text().splitlines()[:2]
    assert 0 < float(dict(zip(header.split(","), first.split(","), strict=True))["shift"]) < 1


def test_predict_tells_the_shift(memo, tmp_path):
    image = tmp_path / "image.png"
    Image.fromarray(load_sample()[0].image).save(image)
    code, text, _ = memo("predict", image, "--model", "resnet20-bn", "--method", "source", "--json")
    assert code == 0 and 0 < json.loads(text)["shift"] < 1 and json.loads(text)["clean_shift"] == CLEAN_SHIFT
    code, text, _ = memo("predict", image, "--model", "resnet26", "--method", "source", "--json")
    assert code == 0 and json.loads(text)["shift"] is None
