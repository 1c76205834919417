"""Rate and time left, with a fake clock."""

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from memo_tta import progress as module
from memo_tta.progress import RateEstimate, progress


class FakeClock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


def test_before_the_first_item_only_the_units_are_shown(clock):
    estimate = RateEstimate("images")
    assert estimate(0, 100) == "images"
    clock.now += 60
    assert estimate(0, 100) == "images"
    clock.now += 2
    assert estimate(31, 100) == "images · 0.5/s · 2:18 left"


def test_items_within_the_first_moment_are_no_estimate(clock):
    estimate = RateEstimate("images")
    for done in range(20):
        clock.now += 0.01
        assert estimate(done, 100) == "images"


def test_steady_items_give_their_rate(clock):
    estimate = RateEstimate("images")
    text = ""
    for done in range(101):
        text = estimate(done, 1000)
        clock.now += 0.1
    assert text == "images · 10.0/s · 1:30 left"


@pytest.mark.parametrize("updates", [1, 24])
def test_a_burst_counts_as_a_whole_from_the_first_one_on(clock, updates):
    """24 records every 6 s are 4 records per second, whether one update reports them or 24 do."""
    estimate = RateEstimate("records")
    text = estimate(0, 2400)
    for burst in range(1, 30):
        clock.now += 6 if updates == 1 else 6 - 23 * 0.001
        for item in range(1, updates + 1):
            text = estimate((burst - 1) * 24 + item * 24 // updates, 2400)
            clock.now += 0.001 if item < updates else 0
        left = (2400 - 24 * burst) / 4
        assert text == f"records · 4.0/s · {left // 60:.0f}:{left % 60:02.0f} left"


def test_a_slow_phase_after_a_fast_one_sets_the_time_left(clock):
    estimate = RateEstimate("images")
    done = 0
    for seconds, items in ((0.01, 2000), (2.0, 30)):
        for _ in range(items):
            estimate(done, 3000)
            clock.now += seconds
            done += 1
    assert estimate(done, 3000) == "images · 0.5/s · 32:20 left"


def test_one_slow_item_does_not_change_the_estimate(clock):
    estimate = RateEstimate("images")
    for done in range(50):
        estimate(done, 100)
        clock.now += 90 if done == 40 else 1
    assert estimate(50, 100) == "images · 1.0/s · 0:50 left"


def test_resumed_work_was_not_done_now(clock):
    estimate = RateEstimate("records")
    assert estimate(5000, 6000) == "records"
    for done in (5001, 5002, 5003):
        clock.now += 2
        text = estimate(done, 6000)
    assert text == "records · 0.5/s · 33:14 left"


def test_a_count_that_restarts_with_the_next_file_keeps_the_rate(clock):
    estimate = RateEstimate("MB")
    text = ""
    for done in (*range(10), *range(5)):
        clock.now += 1
        text = estimate(done, 10)
    assert text == "MB · 1.0/s · 0:06 left"


def test_without_a_terminal_progress_is_a_line_every_ten_seconds(clock, monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(module, "Console", lambda stderr: Console(file=file, width=80))
    with progress("images") as update:
        for done in range(26):
            update(done, 25, "note")
            clock.now += 1
    assert file.getvalue().splitlines() == [
        "10 of 25 images · 1.0/s · 0:15 left note",
        "20 of 25 images · 1.0/s · 0:05 left note",
    ]


def test_on_a_terminal_progress_is_a_bar(clock, monkeypatch):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120)
    monkeypatch.setattr(module, "Console", lambda stderr: console)
    with progress("images") as update:
        update(0, 25)
        clock.now += 1
        update(1, 25, "note")
    assert "1/25" in file.getvalue() and "images · 1.0/s · 0:24 left note" in file.getvalue()


class Notebook:
    """What a notebook shows: the texts of each display, which may change."""

    def __init__(self):
        self.displays: list[list[str]] = []

    def display(self, content, raw, display_id):
        assert raw and display_id and list(content) == ["text/plain"]
        texts = [content["text/plain"]]
        self.displays.append(texts)
        return SimpleNamespace(update=lambda content, raw: texts.append(content["text/plain"]))


def test_in_a_notebook_progress_is_one_line_that_changes(clock, monkeypatch, capsys):
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setattr(module, "Console", lambda stderr: Console(stderr=stderr, force_jupyter=True))
    with progress("images") as update:
        for done in range(1001):
            update(done, 1000, "note")
            clock.now += 1 / 64
    (texts,) = notebook.displays
    assert texts[0] == "0 of 1000 images · note" and texts[-1] == "1000 images · note"
    assert "512 of 1000 images · 64.0/s · 0:08 left · note" in texts
    assert 60 < len(texts) < 66  # four a second
    assert capsys.readouterr() == ("", "")
