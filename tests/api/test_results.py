"""`Results` shows a run on the terminal, in a notebook, as a data frame and in files."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import memo_tta as mt
from memo_tta.errors import ConfigError, DataError, MissingExtra, UnknownName
from memo_tta.evaluation.statistics import PairedComparison, mcnemar_p
from tests.runs import random_records, record, write_run

POINTS = 40


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a clean block and a corrupted one of two parts."""
    records = [*random_records([("", 0)]), *random_records([("fog", 1), ("snow", 5)], seed=1)]
    return write_run(tmp_path / "run", records, job={"data": ["made"], "model": "resnet26"})


@pytest.fixture
def results(run: Path) -> mt.Results:
    return mt.Results(run)


class Cells(HTMLParser):
    """The texts of the cells of all tables, and the tags that are open."""

    def __init__(self, html: str):
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"th", "td"} & set(self.open):
            self.rows[-1][-1] += data


def test_the_table_is_that_of_the_report(results, run, memo):
    code, printed, _ = memo("report", run)
    assert code == 0
    table = repr(results.table()).splitlines()
    assert len(table) >= 10 and [line.rstrip() for line in printed.splitlines()][: len(table)] == table


def test_the_table_fits_a_terminal(results, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    text = repr(results.table())
    assert "\x1b" not in text and max(map(len, text.splitlines()[:-2])) <= 80
    assert "s/image" in text and "to source" in text


def test_a_notebook_shows_the_figures_of_the_table(results):
    cells = Cells(results._repr_html_())
    assert cells.open == [] and cells.rows[0][0] == "method"
    found = {row[0]: row[1] for row in cells.rows[2:5]}
    frame = results.to_pandas()
    clean = frame[frame.corruption == ""]
    for method in ("source", "tta", "memo"):
        rows = clean[clean.method == method]
        error = 100 * (rows.label != rows.prediction).mean()
        assert found[method].startswith(f"{error:.1f}")
    assert results._repr_html_() == results.table()._repr_html_()


def test_the_html_of_a_notebook_stays_in_its_cell_and_follows_its_theme(results):
    html = results._repr_html_()
    (style,) = re.findall(r"<style>(.*?)</style>", html, flags=re.DOTALL)
    selectors = [one for rule in re.findall(r"([^{}]+){", style) for one in rule.split(",")]
    assert all(".memo-tta" in selector for selector in selectors)
    assert not re.search(r"https?:|<script|<link|@import|url\(", html)
    assert 'data-jp-theme-light="false"' in style and ".vscode-dark" in style
    assert not re.search(r"[{;]\s*(color|background): #", style)  # text and background are the notebook's


def test_names_in_html_are_text(tmp_path):
    run = write_run(tmp_path / "run", random_records([("", 0)], dataset="<b>&"))
    html = mt.Results(run)._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;&amp;" in html


def test_notes_of_an_incomplete_run_are_shown(tmp_path):
    run = write_run(tmp_path / "run", random_records([("", 0)]), total=500)
    results = mt.Results(run)
    assert "380 of 500 records are missing" in results._repr_html_()
    assert "380 of 500 records are missing" in repr(results.table())


def test_the_repr_says_methods_data_images_and_errors(tmp_path):
    wrong = {"source": 3, "memo": 1}
    records = [record(name, i, right=i >= n) for name, n in wrong.items() for i in range(10)]
    results = mt.Results(write_run(tmp_path / "run", records, job={"data": ["made"], "model": "resnet26"}))
    assert repr(results) == "Results(resnet26 · made, 10 images: source 30.0 %, memo 10.0 % wrong)"


def test_a_data_frame_has_the_rows_and_columns_of_the_file(results, tmp_path):
    results.to_csv(tmp_path / "rows.csv")
    read = pd.read_csv(tmp_path / "rows.csv", keep_default_na=False, na_values={"marginal_entropy": [""]})
    frame = results.to_pandas()
    assert len(frame) == 3 * 3 * POINTS and list(frame) == list(read)
    frame.reason = frame.reason.fillna("")
    frame["shift"], read["shift"] = 0.0, 0.0  # not measured
    pd.testing.assert_frame_equal(frame, read, check_dtype=False)
    assert frame.adapted.dtype == bool and frame.label.dtype == np.int32


def test_without_pandas_the_message_says_what_to_install(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        results.to_pandas()


def test_comparisons_count_what_changed(results):
    frame = results.to_pandas()
    clean, corrupted = results.compare("memo", "tta")
    for found, rows in ((clean, frame[frame.corruption == ""]), (corrupted, frame[frame.corruption != ""])):
        key = ["corruption", "sample"]
        one, other = (rows[rows.method == name].set_index(key) for name in ("memo", "tta"))
        wrong, reference = (part.label != part.prediction for part in (one, other.loc[one.index]))
        helped, hurt = int((reference & ~wrong).sum()), int((wrong & ~reference).sum())
        assert (found.helped, found.hurt, found.points) == (helped, hurt, len(one))
        assert found.difference == pytest.approx((hurt - helped) / len(one))
        assert found.low <= found.difference <= found.high and found.p == mcnemar_p(helped, hurt)
        assert isinstance(found, PairedComparison)
    back = results.compare("tta", "memo")[0]
    assert (back.helped, back.hurt) == (clean.hurt, clean.helped)


def test_a_comparison_prints_as_a_sentence(tmp_path):
    records = [record("source", i, right=i >= 3) for i in range(10)]
    records += [record("memo", i, right=i != 0) for i in range(10)]
    run = write_run(tmp_path / "run", records, job={"data": ["made"], "model": "resnet26"})
    assert repr(mt.Results(run).compare("memo", "source")) == (
        "resnet26 · made: memo changes the error of source by −20.0 points (95 %: −50.0 to 0.0): "
        "of 10 predictions it corrects 2 and makes 0 wrong (p = 0.500)"
    )


def test_comparisons_of_what_is_not_there_are_refused(results, tmp_path):
    with pytest.raises(UnknownName, match="unknown method of these results 'restore': choose from source"):
        results.compare("restore", "source")
    parts = [record("source", 0, right=True), record("memo", 1, right=True)]
    apart = mt.Results(write_run(tmp_path / "apart", parts))
    with pytest.raises(DataError, match="memo and source have no images in common"):
        apart.compare("memo", "source")


def test_the_page_is_that_of_the_report(results, run, memo, tmp_path):
    results.report(tmp_path / "one.html")
    code, *_ = memo("report", run, "--html", tmp_path / "two.html")
    assert code == 0
    assert (tmp_path / "one.html").read_text() == (tmp_path / "two.html").read_text()
    with pytest.raises(ConfigError, match="is a folder"):
        results.report(tmp_path)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a run"):
        mt.Results(tmp_path)
