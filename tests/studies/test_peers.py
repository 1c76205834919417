"""The study of peers: what its checks notice, and the tables of its page from known figures."""

import numpy as np
import pytest
import torch

from memo_tta.data.corruptions.severity import CorruptionLevel
from studies.peers import corruption_differences, page, study
from studies.peers.checks import check
from studies.peers.entries import ENTRIES
from studies.peers.measurement import measure
from studies.peers.results import costs, csv_rows
from studies.result_files import COLUMNS, blocks

X = torch.linspace(-1, 1, 12).reshape(2, 6)


def module():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)).eval()


def cells(text: str) -> dict[str, list[str]]:
    """Return the cells of each row of a table, by the row's second cell."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[1]: row for row in rows}


def test_a_prediction_that_leaves_everything_alone_passes():
    model = module()
    found = check(model, lambda: model, X)
    assert found == {
        "finite": True,
        "repeats": True,
        "loss": None,
        "no_grad": None,
        "printed": 0,
        "changed": [],
        "answers": True,
    }


def train(model):
    model.train()


def freeze(model):
    model[0].requires_grad_(False)


def step(model):
    with torch.no_grad():
        model[0].weight += torch.finfo(torch.float32).eps


def replace_forward(model):
    model[0].forward = lambda: None


@pytest.mark.parametrize(
    "change, kinds, answers",
    [
        (train, ["weights", "modes"], False),  # running statistics are part of the state
        (freeze, ["gradient flags"], True),
        (step, ["weights"], False),
        (replace_forward, [], "TypeError"),
    ],
)
def test_what_is_left_behind_is_noticed(change, kinds, answers):
    model = module()

    def predict(x):
        logits = model(x)
        change(model)
        return logits

    found = check(model, lambda: predict, X)
    assert found["changed"] == kinds
    assert found["answers"] is answers or str(found["answers"]).startswith(str(answers))


def test_errors_noise_and_gradients_are_noticed():
    model = module()
    refused = check(model, lambda: {}["method"], X)
    assert refused["error"] == "KeyError: 'method'" and refused["answers"] is True
    noisy = check(model, lambda: lambda x: model(x) + torch.rand(3), X)
    assert noisy["repeats"] is False
    broken = check(model, lambda: lambda x: model(x) / 0 * 0, X)
    assert broken["finite"] is False

    def adapt(x):
        print("loss")  # noqa: T201
        logits = model(x)
        torch.autograd.grad(logits.sum(), list(model.parameters()))
        return logits

    found = check(model, lambda: adapt, X)
    assert found["no_grad"].startswith("RuntimeError: ") and found["printed"] == 3


def test_every_block_has_the_ratio_of_its_times():
    model = module()
    found = measure(model, lambda x: torch.eye(3)[[1] * len(x)], X.repeat(25, 1), batch=1)
    assert found["predictions"] == [1] * 50
    assert len(found["blocks"]) == 3 and all(ratio > 0 and bare > 0 for ratio, bare in found["blocks"])


def packed(*wrong: int) -> str:
    return np.packbits(np.isin(np.arange(10), wrong)).tobytes().hex()


def part(wrong: tuple[int, ...], *ratios: float):
    return {"wrong": packed(*wrong), "blocks": [[ratio, 0.1] for ratio in ratios]}


def measured():
    def entry(batch, clean, fog, contrast):
        parts = {"0": clean, "fog 3": fog, "contrast 5": contrast}
        return {"points": 10, "batch": batch, "parts": parts, "peak_kib": 2**20}

    return {
        "resnet26": {
            "source": entry(1, part((0,), 1.0), part((0, 1), 1.0), part((0, 1, 2, 3), 1.0)),
            "MemoEngine": entry(64, part((0, 9), 3.0, 4.0, 20.0), part((0,), 5.0), part((0, 1, 2), 7.0)),
        }
    }


def test_rows_of_the_csv_are_read_again():
    rows = list(csv_rows(measured()))
    assert [row["wrong"] for row in rows] == [1, 2, 4, 2, 1, 3] and list(rows[0]) == COLUMNS
    found = blocks([{name: str(value) for name, value in row.items()} for row in rows])["resnet26"]
    assert found.parts[CorruptionLevel("fog", 3)]["MemoEngine"].wrong.tolist() == [True] + [False] * 9


def test_errors_times_and_memory_stand_in_one_row():
    rows = [{name: str(value) for name, value in row.items()} for row in csv_rows(measured())]
    text = page.errors(blocks(rows)["resnet26"], costs(measured())["resnet26"])
    assert text is not None
    source, engine = cells(text)["source"], cells(text)["MemoEngine"]
    assert source[3:7] == ["10.0", "", "30.0", ""]
    assert engine[0] == "torch-ttt" and engine[2] == "10"  # all there are
    assert engine[3] == "20.0" and engine[4].startswith("+10.0 (0.0 to +")
    assert engine[5] == "20.0" and engine[6].startswith("-10.0 (")
    assert engine[7:] == ["4.0 / 6.0", "1024"]


def test_a_table_without_figures_is_not_written():
    assert page.errors(None, {}) is None


def checked(**different):
    same = {"finite": True, "repeats": True, "loss": None, "no_grad": None, "changed": [], "answers": True}
    return {**same, **different}


def test_each_entry_has_one_row_of_checks():
    changed = checked(changed=["weights"], answers=False)
    error = {"error": "TypeError: no input", "changed": [], "answers": "TypeError: no input"}
    found = {
        "resnet26": {
            "memo": {"1": checked(), "16": checked()},
            "tent": {"1": checked(repeats=False), "16": checked()},
            "MemoEngine": {"1": checked(no_grad="RuntimeError: x"), "16": checked(loss="nan")},
            "ActMADEngine": {"1": checked(finite=False, repeats=False), "16": changed},
        },
        "resnet20-bn": {
            "memo": {"1": checked(), "16": checked()},
            "tent": {"1": checked(), "16": checked()},
            "MemoEngine": {"1": error, "16": error},
            "ActMADEngine": {"1": checked(), "16": checked()},
        },
    }
    rows = cells(page.checks(found))
    assert rows["memo"][2:] == ["runs", "runs", "yes", "as before", "yes"]
    assert rows["tent"][4] == "sometimes"
    assert rows["MemoEngine"][2:4] == ["1: runs; 16: NaN loss", "TypeError"]
    assert rows["MemoEngine"][5:] == ["raises TypeError", "RuntimeError"]
    assert rows["ActMADEngine"][2] == "1: NaN; 16: runs"
    assert rows["ActMADEngine"][4] == "yes"  # NaN is never equal to itself
    assert rows["ActMADEngine"][5] == "weights changed, answers differ"
    assert page.refusals(found) == "- MemoEngine (resnet20-bn): `TypeError: no input`"


def test_corruptions_are_compared_by_their_pixels():
    images = [np.full((4, 4, 3), 100, np.uint8), np.full((4, 4, 3), 50, np.uint8)]
    found = corruption_differences.compare(lambda x: x + 3, lambda x: x - 1, images)
    assert (found["random"], found["largest"], found["theirs"], found["ours"]) == (False, 4, 3.0, 1.0)
    rng = np.random.default_rng(0)
    noise = corruption_differences.compare(
        lambda x: rng.integers(0, 255, x.shape, np.uint8), lambda x: x, images
    )
    assert noise["random"] is True
    refused = corruption_differences.compare(lambda x: x.reshape(5), lambda x: x + 2, images)
    assert refused["error"].startswith("ValueError: ") and refused["ours"] == 2


def test_a_corruption_that_raises_has_its_error_in_the_table(monkeypatch):
    monkeypatch.setattr(page, "CORRUPTIONS", ("fog", "contrast"))
    figures = {"random": False, "largest": 0, "theirs": 2.0, "ours": 2.0, "time": 0.5}
    found = {f"{size} contrast {level}": figures for size in (224, 32) for level in (3, 5)}
    found |= {
        f"{size} fog {level}": {"error": "TypeError: no", "ours": 1.5}
        for size in (224, 32)
        for level in (3, 5)
    }
    lines = page.corruptions(found).splitlines()
    assert lines[2] == "| fog | `TypeError: no` |  | – / 1.5 | – / 1.5 | – / 1.5 |  |"
    assert lines[3] == "| contrast | runs | 0 | 2.0 / 2.0 | 2.0 / 2.0 | 2.0 / 2.0 | 0.5, 0.5 |"


def test_all_measured_entries_exist():
    assert {name for names in study.MEASURED.values() for name in names} <= set(ENTRIES)


def test_results_are_collected_by_their_names(tmp_path):
    study.write_json(study.result_path(tmp_path, "versions"), {"Python": "3"})
    study.write_json(study.result_path(tmp_path, "measured/resnet26/five crops"), {"points": 1})
    assert study.collect(tmp_path) == {
        "versions": {"Python": "3"},
        "measured": {"resnet26": {"five crops": {"points": 1}}},
    }
