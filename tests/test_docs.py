"""Python blocks of the documentation run, in order, one namespace per page; links lead somewhere."""

import os
import re
import subprocess
import sys
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

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in ("docs", "src", "tests") for page in sorted((ROOT / folder).rglob("*.md"))),
]
TABLES: tuple[dict[str, Any], ...] = (METHODS, ZOO, RESTORATIONS)
README_WORDS = 750  # at most, outside of code and tables
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
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
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


def test_the_guides_have_a_signal_and_a_text_example():
    text = (ROOT / "docs/howto/signals-and-text.md").read_text("utf-8")
    assert "## Signals" in text and "## Text" in text and text.count("assert p.adapted") == 2


def test_the_readme_shows_what_its_first_block_prints(capsys):
    code, printed = re.findall(
        r"```python\n(.*?)```\n\n    ([^\n]+)\n", (ROOT / "README.md").read_text("utf-8"), flags=re.DOTALL
    )[0]
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == f"{printed}\n"


def test_the_tutorial_shows_what_the_methods_predict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs/tutorial.md"
    run_blocks(page, {})
    command = r"memo predict noisy/\*.png --model resnet26 --method (\w+)"
    shown = re.findall(command + r"\n\nThis prints:\n\n((?:    .+\n)+)", page.read_text("utf-8"))
    assert [method for method, _ in shown] == ["source", "restore", "memo"]
    for method, table in shown:
        rows = re.findall(r"    (noisy/\S+) .*?(\w+) +([\d.]+)% → +([\d.]+)%", table)
        assert len(rows) == 3
        robust = mt.method(method, mt.load("resnet26"))
        for file, label, before, after in rows:
            p = robust.predict(file)
            assert p.label == label
            scores = (100 * p.source.score, 100 * p.score)
            assert scores == pytest.approx((float(before), float(after)), abs=0.5)


def without_code(text: str) -> str:
    """Return Markdown without code: blocks in fences, indented blocks, and spans."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+", "", text)
    return re.sub(r"`[^`\n]*`", "code", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page that both GitHub and the site give its headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    on_github: list[str] = []
    on_site: list[str] = []
    for title in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        words = re.sub(r"[^\w\s-]", "", shown)
        on_github.append(numbered(words.replace(" ", "-"), on_github, "-"))
        on_site.append(
            numbered(re.sub(r"[-\s]+", "-", words.encode("ascii", "ignore").decode()), on_site, "_")
        )
    return {*on_github} & {*on_site} if ROOT / "docs" in page.parents else {*on_github}


def numbered(anchor: str, taken: list[str], mark: str) -> str:
    """Return the anchor, with a number if it is taken."""
    names = [anchor, *(f"{anchor}{mark}{number}" for number in range(1, len(taken) + 1))]
    return next(name for name in names if name not in taken)


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8")))


def test_links_and_anchors_are_found_in_markdown(tmp_path):
    page = tmp_path / "page.md"
    code = "```text\n# no\n[a](no.md)\n```\n\n    [b](no.md)\n\n    [c](no.md)\n\n`[d](no.md)`\n"
    page.write_text(f"# Café, `a_b` - [E](e.md)!\n## Two\n{code}### Two\n[f](#two)\n", "utf-8")
    assert links(page) == ["e.md", "#two"]
    assert anchors(page) == {"café-a_b---e", "two", "two-1"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    broken: list[str] = []
    for link in links(page):
        if re.match(r"(https?|mailto):", link):
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    assert not broken


def test_the_site_builds_without_a_warning(tmp_path):
    # Not --quiet: with it, --strict overlooks warnings.
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    hush = {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env={**os.environ, **hush}, capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents}
    nav = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), flags=re.MULTILINE))
    assert nav == pages
    # Everything that the pages load comes with them.
    loaded = re.findall(
        r"(?:src=|<link [^>]*href=)[\"'](https?:[^\"']+)", (tmp_path / "index.html").read_text()
    )
    assert not loaded


def test_the_readme_is_short():
    text = re.sub(r"^\|.*\n", "", without_code((ROOT / "README.md").read_text("utf-8")), flags=re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)  # pictures
    words = re.findall(r"\w\S*", re.sub(r"\]\([^)]*\)", "", text))
    assert len(words) <= README_WORDS, f"{len(words)} words outside of code and tables"
