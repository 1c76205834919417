"""The suite runs and reports; whether its bars hold is for `memo bench` to say, not for a test."""

import json

import pytest

from benchmarks import adaptation, memory, startup
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
