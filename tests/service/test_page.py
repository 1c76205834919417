"""The page as the server renders it; how it behaves in a browser is tested in tests/browser."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from memo_tta.data.corruptions import corrupt
from memo_tta.data.sample_images import load_sample
from memo_tta.methods import METHODS
from memo_tta.models.zoo import load
from memo_tta.seeding import content_id, sample_rng
from memo_tta.service.page.rendering import TEMPLATES
from memo_tta.service.page.routes import STATIC
from tests.nets import build_classifier
from tests.service.http_client import request
from tests.service.live import image_file

HTMX = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def page_text(server) -> str:
    return server.send(request("/", method="GET")).body.decode()


def first_group(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None
    return match.group(1)


def first_image(html: str) -> np.ndarray:
    """Return the first image in a part of the page."""
    data = first_group(r"data:image/png;base64,([^\"]+)", html)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def controls(page_text: str, method: str) -> str:
    """Return the part of the page with the sliders of a method."""
    return first_group(rf'(?s)(<fieldset class="controls" data-method="{method}".*?</fieldset>)', page_text)


def test_the_page_offers_images_corruptions_and_marked_sliders(open_client):
    page_text = open_client(load("resnet26")).get("/").text
    assert len(re.findall(r'type="radio"', page_text)) == 10 and page_text.count(" checked") == 1
    corruptions = first_group(r'(?s)(<select name="corruption".*?</select>)', page_text)
    assert len(re.findall(r"<option", corruptions)) == 20
    memo = controls(page_text, "memo")
    assert " hidden" not in memo and 'name="n_views"' in memo and 'name="lr_step"' in memo
    assert memo.count("paper’s value") == 2
    assert "style=" not in page_text and "onclick" not in page_text, "the content security policy forbids it"


def test_nothing_is_fetched_from_elsewhere(page_text):
    assert not re.findall(r"(?:src|href)=\"(?!/|data:)", page_text)
    for path in [*STATIC.iterdir(), *TEMPLATES.iterdir()]:
        text = path.read_text("utf-8")
        found = set(re.findall(r"(?:url\(|import |fetch\(|src=\"|href=\")[\"']?(https?:[^\"')]*)", text))
        assert not found, path.name


def test_vendored_files_come_with_their_licences():
    for name, words in (("htmx", "Zero-Clause BSD"), ("pico", "MIT License")):
        assert words in (STATIC / f"{name}.LICENSE.txt").read_text("utf-8")


def test_the_preview_shows_the_corruption_on_what_the_model_sees(open_client):
    classifier = load("resnet26")
    client = open_client(classifier)
    position = 3
    name = re.findall(r'name="sample".*?aria-label="(.*?)"', client.get("/").text)[position]
    labels = classifier.labels or []
    image = next(sample.image for sample in load_sample() if labels[sample.target] == name)
    for severity in (1, 5):
        form = {"sample": str(position), "corruption": "gaussian_noise", "severity": str(severity)}
        html = client.post("/page/preview", data=form, files={"image": b""}, headers=HTMX).text
        rng = sample_rng(0, f"gaussian_noise {severity} {content_id(image)}")
        assert np.array_equal(first_image(html), corrupt(image, "gaussian_noise", severity, rng))
    html = client.post(
        "/page/preview", data={"sample": str(position)}, files={"image": b""}, headers=HTMX
    ).text
    assert np.array_equal(first_image(html), image)


def test_an_uploaded_image_comes_before_a_chosen_one(open_client):
    client = open_client()
    html = client.post(
        "/page/preview", data={"sample": "1"}, files={"image": image_file(3)}, headers=HTMX
    ).text
    expected = build_classifier("group-norm").point(Image.open(io.BytesIO(image_file(3)))).fitted
    assert np.array_equal(first_image(html), expected)


def test_the_result_shows_both_answers_and_the_views(open_client):
    client = open_client()
    form = {"corruption": "contrast", "severity": "3", "n_views": "6", "lr_step": "0"}
    html = client.post("/page/predict", data=form, files={"image": image_file(3)}, headers=HTMX).text
    assert html.count("<article data-side=") == 2 and html.count('alt="View ') == 6
    assert len(re.findall(r"<rect width=", html)) == 2 * 5 and "nats" in html and "<html" not in html
    widths = [float(width) for width in re.findall(r'<rect width="([\d.]+)"', html)]
    assert sum(widths[:5]) == pytest.approx(100, abs=0.1), "all five classes of this model"


@pytest.mark.parametrize("method", ["tta", "restore"])
def test_a_method_that_averages_shows_its_views_too(open_client, method):
    client = open_client(method=method, options={"restore": {"early_views": None}, "tta": {"n_views": 6}})
    html = client.post("/page/predict", files={"image": image_file(3)}, headers=HTMX).text
    assert METHODS[method].about in client.get("/").text
    assert "Not adapted" not in html and html.count('alt="View ') == (6 if method == "tta" else 12)
    assert "after adaptation" not in html


def test_without_scripts_the_answer_is_a_page(open_client):
    client = open_client()
    html = client.post("/page/predict", files={"image": image_file(3)}).text
    assert html.count("<article data-side=") == 2 and "<html" in html


def test_errors_are_parts_of_the_page(open_client):
    client = open_client(max_body=2**16)
    for form, data, status, name in (
        ({}, b"", 422, "invalid"),
        ({"sample": "77777"}, b"", 422, "invalid"),
        ({"corruption": "rain"}, image_file(), 422, "invalid"),
        ({"severity": "6"}, image_file(), 422, "invalid"),
        ({"n_views": "999"}, image_file(), 422, "invalid"),
        ({"lr_step": "999"}, image_file(), 422, "invalid"),
        ({}, b"<b>no image</b>", 415, "unsupported_type"),
        ({}, image_file()[:-30], 422, "damaged_image"),
        ({}, bytes(2**16), 413, "too_large"),
    ):
        reply = client.post("/page/predict", data=form, files={"image": data}, headers=HTMX)
        assert reply.status_code == status and f'data-error="{name}"' in reply.text
        assert reply.headers["content-type"].startswith("text/html") and 'role="alert"' in reply.text


def test_an_error_on_the_page_is_escaped(open_client):
    client, field = open_client(), "<script>"
    reply = client.post("/page/predict", data={field: "1"}, files={"image": image_file()}, headers=HTMX)
    assert reply.status_code == 422 and "&lt;script&gt;" in reply.text and field not in reply.text


def test_a_method_without_views_has_no_sliders(open_client):
    client = open_client(method="source")
    source = controls(client.get("/").text, "source")
    assert '<input type="range"' not in source and " hidden" not in source
    html = client.post("/page/predict", files={"image": image_file()}, headers=HTMX).text
    assert "The prediction of the model as it is." in html and html.count("<article data-side=") == 1
