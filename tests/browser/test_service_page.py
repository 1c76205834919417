"""The service's page in Chromium, against a running service."""

import pytest

from memo_tta.models.zoo import load
from tests.service.live import build_served_model, image_file, live_service

POLICY = "Content Security Policy"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 375, "height": 740}


@pytest.fixture(scope="module")
def service():
    served_model = build_served_model(load("resnet26"), max_body=2**20, options={"memo": {"n_views": 8}})
    with live_service(served_model) as service:
        yield service


@pytest.fixture
def opened(page, service):
    """The page with its first preview; it must load nothing from elsewhere and follow its security policy."""
    requested, errors = list[str](), list[str]()
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if POLICY in message.text else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(60_000)
    page.goto(service.url)
    page.wait_for_selector("#preview img")
    yield page
    assert all(url.startswith((service.url, "data:")) for url in requested)
    assert not errors


def preview_source(page) -> str | None:
    return page.locator("#preview img").get_attribute("src")


def change_preview(page, action) -> None:
    """Do something that changes the preview, and wait until it has changed."""
    before = preview_source(page)
    action()
    page.wait_for_function("before => document.querySelector('#preview img')?.src !== before", arg=before)


def test_upload_corrupt_predict_and_see_both(opened, tmp_path):
    file = tmp_path / "photo.png"
    file.write_bytes(image_file(5, 40))
    change_preview(opened, lambda: opened.set_input_files("#image", file))
    assert opened.inner_text("#file-name") == "photo.png"
    assert opened.locator("input[name=sample]:checked").count() == 0
    change_preview(opened, lambda: opened.select_option("#corruption", "fog"))
    change_preview(opened, lambda: opened.fill("#severity", "5"))
    assert opened.inner_text("output[for=severity]") == "5"
    opened.fill("#n_views-memo", "12")
    opened.click("#predict")
    opened.wait_for_selector("[data-side=after]")
    for side in ("before", "after"):
        assert opened.locator(f"[data-side={side}] li").count() == 5
    assert opened.locator(".views li").count() == 12 and "nats" in opened.inner_text("#result dl")
    drawn = opened.locator(".views img").evaluate_all("all => all.every(one => one.naturalWidth > 0)")
    widths = opened.locator("[data-side=after] rect").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().width)"
    )
    assert drawn and max(widths) > 20, "the security policy does not block the bars"
    tints = opened.locator(".views li span").evaluate_all(
        "all => all.map(one => getComputedStyle(one).backgroundColor)"
    )
    assert all(tint != "rgba(0, 0, 0, 0)" for tint in tints)


@pytest.mark.parametrize(
    ("method", "sliders", "statuses", "sides"),
    [
        ("memo", 2, {"adapted"}, 2),
        ("restore", 1, {"averaged"}, 2),
        ("source", 0, {"source"}, 1),
    ],
)
def test_the_words_and_controls_are_those_of_the_chosen_method(opened, method, sliders, statuses, sides):
    opened.select_option("#method", method)
    shown = opened.locator("fieldset.controls:visible")
    assert shown.get_attribute("data-method") == method
    assert shown.locator("input[type=range]").count() == sliders
    opened.click("#predict")
    opened.wait_for_selector("#result [data-status]")
    assert opened.locator("#result [data-status]").get_attribute("data-status") in statuses
    assert opened.locator("#result [data-side]").count() == sides
    if method != "source":
        assert method in opened.inner_text("#result .note")


def test_a_chosen_image_takes_the_place_of_a_file(opened, tmp_path):
    file = tmp_path / "photo.png"
    file.write_bytes(image_file(5, 40))
    change_preview(opened, lambda: opened.set_input_files("#image", file))
    change_preview(opened, lambda: opened.locator("input[name=sample]").nth(2).check())
    assert opened.evaluate("document.getElementById('image').files.length") == 0


def test_an_oversized_file_shows_its_message(opened, tmp_path):
    file = tmp_path / "large.png"
    file.write_bytes(bytes(2**20 + 1))
    opened.set_input_files("#image", file)
    opened.wait_for_selector("#preview .error")
    assert "large.png has 1.0 MiB, more than the 1 MiB allowed" in opened.inner_text("#preview")
    opened.evaluate("document.getElementById('form').dataset.maxBody = 2 ** 30")  # the server checks it, too
    opened.set_input_files("#image", file)
    opened.wait_for_selector("#preview .error[data-error=too_large]")
    assert "more than the 1 MiB" in opened.inner_text("#preview")


def test_what_is_no_image_shows_its_message(opened, tmp_path):
    file = tmp_path / "text.png"
    file.write_bytes(b"not an image")
    opened.set_input_files("#image", file)
    opened.wait_for_selector("#preview .error[data-error=unsupported_type]")
    opened.click("#predict")
    opened.wait_for_selector("#result .error[data-error=unsupported_type]")
    assert opened.locator("#predict").is_enabled()


def test_keyboard_only(opened):
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.name") == "sample"
    change_preview(opened, lambda: opened.keyboard.press("ArrowRight"))
    for name in ("image", "corruption", "severity", "method", "n_views", "lr_step"):
        opened.keyboard.press("Tab")
        assert opened.evaluate("document.activeElement.name") == name
        if name == "severity":
            change_preview(opened, lambda: opened.keyboard.press("ArrowRight"))
        if name == "n_views":
            opened.keyboard.press("Home")
            assert opened.inner_text("output[for=n_views-memo]") == "1"
        if name == "lr_step":
            before = opened.inner_text("output[for=lr_step-memo]")
            opened.keyboard.press("ArrowRight")
            assert float(opened.inner_text("output[for=lr_step-memo]")) > float(before)
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.id") == "predict"
    opened.keyboard.press("Enter")
    opened.wait_for_selector("[data-side=after]")
    assert opened.locator(".views li").count() == 1


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_sticks_out(opened, size):
    opened.set_viewport_size(size)
    opened.click("#predict")
    opened.wait_for_selector(".views li")
    assert opened.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert opened.evaluate("document.getElementById('result').getBoundingClientRect().top") < size["height"]
    sides = opened.locator("#result [data-side]").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().x)"
    )
    assert (sides[0] == sides[1]) == (size is NARROW), "side by side on wide screens"


def test_a_busy_service_says_so(opened, service):
    pool = service.handlers.pool
    queue_size, pool._queue_size = pool._queue_size, -100
    try:
        opened.click("#predict")
        opened.wait_for_selector("#result .error[data-error=busy]")
    finally:
        pool._queue_size = queue_size
    opened.click("#predict")
    opened.wait_for_selector("[data-side=after]")


def test_a_page_that_is_opened_while_the_model_warms_up_shows_its_image_later(page, service):
    pool = service.handlers.pool
    n_alive, pool.n_alive = pool.n_alive, 0
    try:
        page.goto(service.url)
        page.wait_for_selector("#preview .error[data-error=starting]")
    finally:
        pool.n_alive = n_alive
    page.wait_for_selector("#preview img")


def test_a_service_that_is_gone_is_missed(opened):
    opened.context.set_offline(True)
    opened.click("#predict")
    opened.wait_for_selector("#result .error")
    assert "cannot be reached" in opened.inner_text("#result")
    assert opened.locator("#predict").is_enabled()
