"""The page of a report, in Chromium."""

from memo_tta.evaluation.driver import evaluate
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.report.html import run_page
from memo_tta.report.run import open_run
from memo_tta.workers import Processes
from tests.runs import random_records, write_run


def show(page, runs, path):
    """Open the report and check that it loads nothing from elsewhere; return whether each image is shown."""
    path.write_text(run_page([open_run(run) for run in runs]), "utf-8")
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(path.as_uri())
    assert all(url.startswith(("file:", "data:")) for url in requested)
    shown = page.locator("figure img").evaluate_all(
        "all => all.map(one => one.complete && one.naturalWidth > 0)"
    )
    assert shown and all(shown)
    for width in (1280, 480):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "no horizontal scrolling"
    return shown


RESULTS = "h2:text-is('Results') + p + .card"
REPRODUCE = "section:has(h2:text-is('How to reproduce these figures'))"
FIRST_PLOT = 1  # of error against time


def test_the_page_of_a_real_run(page, tmp_path):
    job = EvaluationJob(
        data=["sample"],
        model="resnet26",
        options={"memo": {"n_views": 4, "lr": 0.05}},
        corruptions=["gaussian_noise"],
        severities=[5],
        limit=20,
    )
    evaluate(job, tmp_path / "run", Processes(1), lambda *_: None)
    shown = show(page, [tmp_path / "run"], tmp_path / "page.html")
    assert page.locator(f"{RESULTS} tr.method").count() == 2
    assert len(shown) == FIRST_PLOT + 2 + page.locator("img.panel").count()
    assert page.locator(f"{REPRODUCE} pre").inner_text().startswith("memo evaluate sample --model resnet26")
    assert page.locator("h1").inner_text() == "resnet26 · sample, corrupted"


def test_the_page_of_several_runs(page, tmp_path):
    runs = []
    for views in (4, 16):
        options = {"memo": {"n_views": views}}
        job = EvaluationJob(data=["gone"], model="resnet50", methods=("source", "memo"), options=options)
        records = random_records([("fog", 1), ("snow", 5)], methods=("source", "memo"), seed=views)
        runs.append(write_run(tmp_path / f"{views} views", records, job=job.as_dict()))
    shown = show(page, runs, tmp_path / "page.html")
    assert len(shown) == 2 * FIRST_PLOT + 1 + 2 * 2 and page.locator(f"{RESULTS} tr.model").count() == 2
    assert page.locator(".maps table").count() == 2 * 2
    first = page.locator(f"{RESULTS} tr.method").nth(1).inner_text().split()
    assert first[0] == "memo" and first[1].replace(".", "").isdecimal()
