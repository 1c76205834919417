"""The page that `memo demo` writes, in Chromium."""

import pytest

from memo_tta.cli import main


def test_the_page_shows_table_and_pictures(page, tmp_path):
    with pytest.raises(SystemExit):
        main(["demo", "--out", str(tmp_path), "--points", "4"])
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto((tmp_path / "index.html").as_uri())
    assert (
        page.locator("tbody tr").count() == (4 + 1) * 3
    )  # four kinds of images, and the shifted ones together
    assert page.locator("tbody tr").nth(3).inner_text().split()[:2] == ["shifted", "source"]
    assert page.locator("tbody tr").nth(6).inner_text().split()[:2] == ["noise", "source"]
    images = page.locator("figure img")
    shown = images.evaluate_all("all => all.map(one => one.complete && one.naturalWidth > 0)")
    assert shown and all(shown) and len(shown) == len(list(tmp_path.glob("views-*.png")))
    assert all(url.startswith(("file:", "data:")) for url in requested)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"], "no horizontal scrolling"
