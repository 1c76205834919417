"""Every Python block of the documentation runs, in order, one namespace per page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import memo_tta as mt
from memo_tta.data.sample_images import load_sample
from memo_tta.methods import METHODS
from memo_tta.models.zoo import ZOO
from memo_tta.views.restoration import RESTORATIONS
from tests.conftest import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
TABLES: tuple[dict[str, Any], ...] = (METHODS, ZOO, RESTORATIONS)
WITH_CODE = [page for page in PAGES if "```python" in page.read_text("utf-8")]


def small_imagenet_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 7, stride=8),
        nn.BatchNorm2d(4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


@pytest.fixture
def tables() -> Iterator[None]:
    """Take rows that an example adds out of the package's tables again."""
    before = [dict(table) for table in TABLES]
    yield
    for table, rows in zip(TABLES, before, strict=True):
        table.clear()
        table.update(rows)


def run_blocks(page: Path, namespace: dict[str, Any]) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)).save("photo.jpg")
    namespace = {"module": small_imagenet_model(), "names": ["a", "b", "c"], "x": torch.randn(1, 3, 224, 224)}
    run_blocks(page, namespace)


@pytest.mark.usefixtures("tables")
def test_the_examples_of_the_contributors_guide_do_what_they_say():
    namespace: dict[str, Any] = {}
    run_blocks(ROOT / "CONTRIBUTING.md", namespace)
    classifier, image = mt.load("resnet26"), load_sample()[0].image
    x = classifier.point(image).x[None]
    with torch.no_grad():
        expected = (classifier.module(x) + classifier.module(x.flip(-1))) / 2
    torch.testing.assert_close(mt.method("mirror", classifier)(x), expected, rtol=1e-4, atol=1e-5)
    assert mt.method("tta-crops", classifier).predict(image).status == "averaged"
    dark = namespace["vignette"](np.full((9, 9, 3), 200, np.uint8), np.random.default_rng(0), 0.5)
    assert dark[4, 4, 0] == 200 and dark[0, 0, 0] == 100 and dark.dtype == np.uint8
    assert isinstance(ZOO["resnet18-copy"].build(10), nn.Module)
    grey, red = torch.full((3, 8, 8), 0.5), torch.full((3, 8, 8), 0.2)
    red[0] = 0.8
    assert RESTORATIONS["rebalanced"](grey) is grey
    torch.testing.assert_close(RESTORATIONS["rebalanced"](red), torch.full((3, 8, 8), 0.4))


def test_the_guide_has_a_signal_and_a_text_example():
    text = (ROOT / "docs/guide.md").read_text("utf-8")
    assert "## Signals" in text and "## Text" in text and text.count("assert p.adapted") == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if "." in target and not target.startswith("http"):
            assert (page.parent / target).is_file(), target


def test_the_guide_s_table_is_what_memo_declares():
    declared = METHODS["memo"].declarations.values()
    rows = [f"| `{o.name}` | `{o.default!r}` | {o.shown_values} | {o.meaning} |" for o in declared]
    table = "\n".join(["| option | default | values | meaning |", "|---|---|---|---|", *rows, ""])
    assert table in (ROOT / "docs/guide.md").read_text("utf-8"), f"the table should be:\n{table}"
