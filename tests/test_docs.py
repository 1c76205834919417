"""Every Python block of the documentation runs, in order, one namespace per page."""

import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from memo_tta.methods import METHODS
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text("utf-8")]


def small_imagenet_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 7, stride=8),
        nn.BatchNorm2d(4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)).save("photo.jpg")
    namespace = {"module": small_imagenet_model(), "names": ["a", "b", "c"], "x": torch.randn(1, 3, 224, 224)}
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)


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
