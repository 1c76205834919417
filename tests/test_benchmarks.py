"""The suite runs and reports; whether its bars hold is for `memo bench` to say, not for a test."""

import json

import pytest
import torch

from benchmarks import adaptation, installed, load, memory, startup, views
from benchmarks.measure import Row, interleaved
from memo_tta.cli import main


@pytest.mark.parametrize("part", ["adaptation", "startup"])
def test_a_part_prints_what_it_measured(part, capsys, monkeypatch):
    for module in (adaptation, startup):
        monkeypatch.setattr(module, "ROUNDS", 1)
    monkeypatch.setattr(adaptation, "VIEWS", 2)
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--only", part, "--json"])
    row = json.loads(capsys.readouterr().out)
    assert row["part"] == part and row["measured"] > 0
    assert stopped.value.code == (0 if row["holds"] else 1)


@pytest.mark.parametrize("has_torchvision", [True, False])
def test_views_are_compared_with_the_published_way_and_torchvisions(monkeypatch, has_torchvision):
    if not has_torchvision:
        monkeypatch.setattr(installed, "torchvision", lambda: None)
    elif installed.torchvision() is None:
        pytest.skip("torchvision is not installed")
    monkeypatch.setattr(views, "ROUNDS", 1)
    monkeypatch.setattr(
        views, "CASES", (views.Case(32, "padded", 2, 1, 0.5), views.Case(96, "resized", 2, 1, 0.5))
    )
    threads = torch.get_num_threads()
    rows = list(views.run())
    assert torch.get_num_threads() == threads
    assert [row.bar for row in rows] == ([0.5, None] if has_torchvision else [0.5]) * 2
    assert all(row.measured > 0 for row in rows)


def test_memory_is_measured_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(memory, "SIZE", 64)
    assert memory._extra_memory(8) >= 0


def test_a_bar_holds_up_to_its_value():
    assert Row("a", 1.0, 1.0, "x", "").holds and not Row("a", 1.01, 1.0, "x", "").holds


def test_actions_take_turns():
    order = []
    interleaved(2, a=lambda: order.append("a"), b=lambda: order.append("b"))
    assert order == list("ababab")


def test_an_unknown_part_lists_the_choices(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--only", "adaption"])
    assert "did you mean 'adaptation'" in capsys.readouterr().err


def test_the_load_test_measures_a_service_that_it_starts_and_ends(monkeypatch):
    for name, value in (("ROUNDS", 1), ("BAD", 16), ("DEADLINE_MS", 60_000)):
        monkeypatch.setattr(load, name, value)
    rows = {row.name: row for row in load.run(1.0)}
    assert rows["two bare processes / service with 2 replicas"].measured > 0
    assert rows["neither an answer nor 503"].measured == 0
    assert rows["bad requests that got no 4xx"].measured == 0
    assert rows["replicas whose weights had to be replaced"].detail.endswith(": 200")
