"""The paper's published figures, and how a page shows them."""

import pytest

from memo_tta.data.corruptions.severity import TEST
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.report.html import run_page
from memo_tta.report.paper_results import CIFAR, CIFAR10C, published
from memo_tta.report.run import open_run
from tests.runs import random_records, write_run


@pytest.mark.parametrize("method", CIFAR10C)
def test_the_papers_parts_average_to_its_table(method):
    every = [(corruption, level) for corruption in TEST for level in range(1, 6)]
    average = published("resnet26", "cifar10-c", every, method, {})
    assert average == pytest.approx(CIFAR["resnet26"][method][2], abs=0.06)
    assert average == published("resnet26", "cifar10", every, method, {})  # made on the fly


def test_the_papers_figures_are_for_its_settings_only():
    clean = [("", 0)]
    assert published("resnet26", "cifar10", clean, "memo", {}) == 7.3
    assert published("resnet26", "cifar10", clean, "memo", {"augment": "standard"}) == 7.2
    assert published("resnet26", "cifar10", clean, "memo", {"lr": 1}) is None
    assert published("resnet26", "cifar10-c", [("fog", 5), ("snow", 1)], "tta", {}) == (23.3 + 11.0) / 2
    assert published("resnet26", "cifar10-c", [("fog", 5)], "memo-ce", {}) is None
    assert published("resnet50", "imagenet-r", clean, "memo", {}) == 58.8
    assert published("resnet50", "imagenet-c", [("fog", 5)], "memo", {}) is None
    assert published("resnext101_32x8d", "imagenet-r", clean, "memo", {}) is None
    assert published("resnet26", "own", clean, "memo", {}) is None
    assert published("resnet26", "imagenet-r", [("fog", 5)], "memo", {}) is None


def test_the_papers_figures_stand_beside_ours(tmp_path):
    records = random_records([("fog", 5), ("snow", 1)], dataset="cifar10-c")
    job = EvaluationJob(
        data=["cifar10-c"], model="resnet26", options={"memo": {"n_views": 32}}
    )  # as the paper has it
    page = run_page([open_run(write_run(tmp_path / "run", records, job=job.as_dict()))])
    table = page[page.index("Comparison with the paper") : page.index("By corruption")]
    source, memo = (
        sum(CIFAR10C[m][c][s - 1] for c, s in (("fog", 5), ("snow", 1))) / 2 for m in ("source", "memo")
    )
    assert f"<td>{source:.1f}</td>" in table and f"<td>{memo:.1f}</td>" in table
    assert f"−{source - memo:.1f}" in table
