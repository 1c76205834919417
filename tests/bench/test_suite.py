"""The suite runs and reports; whether its bars hold is for `memo bench` to say, not for a test."""

import json

import numpy as np
import pytest
import torch

from memo_tta.bench import (
    adaptation,
    evaluation,
    memory,
    page,
    prediction,
    startup,
    torchvision_import,
    views,
)
from memo_tta.bench.measurement import Measurement, interleaved
from memo_tta.cli import main
from memo_tta.models.networks.resnet26 import ResNet26
from studies import continual
from tests.service import load


@pytest.mark.parametrize("part", ["adaptation", "startup"])
def test_a_part_prints_what_it_measured(part, capsys, monkeypatch):
    monkeypatch.setattr(startup, "ROUNDS", 1)
    monkeypatch.setattr(adaptation, "CASES", (adaptation.Case("ResNet-26", ResNet26, 32, 2, None, 1),))
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--only", part, "--json"])
    row = json.loads(capsys.readouterr().out)
    assert row["part"] == part and row["measured"] > 0
    assert stopped.value.code == (0 if row["holds"] else 1)


@pytest.fixture
def few(monkeypatch):
    """Of everything, so that only the way is tested."""
    for name, value in {"ROUNDS": 1, "VIEWS": 2, "BATCHES": (2, 3)}.items():
        monkeypatch.setattr(prediction, name, value)
    for name, value in {"WORKER_POINTS": 4, "POINTS": 2}.items():
        monkeypatch.setattr(evaluation, name, value)
    for name, value in {"ROUNDS": 1, "BATCHES": (2, 3), "SHOWN": 2}.items():
        monkeypatch.setattr(page, name, value)


def test_a_prediction_is_compared_with_the_published_loop(few):
    rows = list(prediction.run())
    assert len(rows) == 3 and all(row.measured > 0 and row.bar for row in rows)


def test_the_published_loop_and_ours_adapt_alike():
    published, robust = prediction.loop(4), prediction.ours(4)
    image, seen = prediction.image(), []
    published.module.register_forward_hook(lambda _, inputs, logits: seen.append((inputs[0], logits)))
    published.predict(image, np.random.default_rng(0))
    (views, _), (x, logits) = seen
    torch.testing.assert_close(robust.predict_views(x, views).logits, logits[0], rtol=1e-4, atol=1e-5)


def test_the_page_shows_rows_and_plots(few):
    html = page.write([Measurement("a < b", 0.5, 1.0, "x", "how"), Measurement("c", 2.0, None, "", "")])
    assert "a &lt; b" in html and "holds" in html and html.count("data:image/svg+xml;base64,") == 2


@pytest.mark.parametrize("has_torchvision", [True, False])
def test_views_are_compared_with_the_published_way_and_torchvisions(monkeypatch, has_torchvision):
    if not has_torchvision:
        monkeypatch.setattr(torchvision_import, "torchvision", lambda: None)
    elif torchvision_import.torchvision() is None:
        pytest.skip("torchvision is not torchvision_import")
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
    assert Measurement("a", 1.0, 1.0, "x", "").holds and not Measurement("a", 1.01, 1.0, "x", "").holds


def test_actions_take_turns():
    order = []
    interleaved(2, a=lambda: order.append("a"), b=lambda: order.append("b"))
    assert order == list("ababab")


def test_an_unknown_part_lists_the_choices(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--only", "adaption"])
    assert "did you mean 'adaptation'" in capsys.readouterr().err


def test_the_load_test_measures_a_service_that_it_starts_and_ends(monkeypatch):
    for name, value in (("ROUNDS", 1), ("N_BAD", 16), ("DEADLINE_MS", 60_000)):
        monkeypatch.setattr(load, name, value)
    rows = {row.name: row for row in load.run(1.0)}
    assert rows["two bare processes / service with 2 replicas"].measured > 0
    assert rows["responses other than 200 and 503"].measured == 0
    assert rows["bad requests without a 4xx response"].measured == 0
    assert rows["replicas replaced because their weights changed"].detail.endswith(": 200")


def test_shares_of_the_commonest_label_are_those_counted_window_by_window():
    said = np.random.default_rng(0).choice([2, 5, 7], size=40, p=[0.6, 0.3, 0.1])
    counted = [max(np.bincount(said[end - 10 : end])) / 10 for end in range(10, 41)]
    assert continual.shares(said, 10).tolist() == counted
