"""The demo: pictures, page and command, on random weights."""

import hashlib
import io
import re
import sys

import numpy as np
import pytest
import torch
from rich.console import Console

from memo_tta.cli import main
from memo_tta.cli.demo import MODELS, choose_examples
from memo_tta.data.dataset import Dataset
from memo_tta.data.sample_images import SHIFTS, load_sample, shifted
from memo_tta.evaluation.comparison import ResultTable, method_results
from memo_tta.evaluation.results import collect
from memo_tta.methods import Memo, Prediction
from memo_tta.models.zoo import ZOO, bundled_error
from memo_tta.report.html import summary_page
from memo_tta.report.terminal import summary_table
from memo_tta.report.view_panel import RIGHT, WRONG, Figure, view_panel
from tests.nets import build_classifier, pictures
from tests.runs import record

# SHA-256 of the first images of CIFAR-10's test set, 32 x 32 x 3 bytes each.
FIRST_SIXTEEN = "9ba28c0857ab703c5a211ab6a9c3418c65bfae0cb717fcbd1e78e8cfd343ad8b"


def prediction(label: str) -> Prediction:
    return Prediction(torch.tensor([5.0 * (label == name) for name in "abc"]), tuple("abc"))


def tables() -> list[ResultTable]:
    """Return results of 100 images: source gets 54 wrong under noise, memo 50, and source 10 under "<b>"."""
    counts = {("noise", "source"): (54, 0.007), ("noise", "memo"): (50, 0.18), ("<b>", "source"): (10, 0.007)}
    records = [
        record(method, position, position >= wrong, dataset=dataset, seconds=seconds)
        for (dataset, method), (wrong, seconds) in counts.items()
        for position in range(100)
    ]
    return [(block, method_results(block)) for block in collect(records)]


def pixels(data: Dataset) -> np.ndarray:
    return np.stack([sample.image for sample in data])


def test_sample_images_are_balanced_and_those_of_the_test_set():
    sample = load_sample()
    assert pixels(sample).shape == (500, 32, 32, 3) and np.bincount(sample.targets).tolist() == [50] * 10
    assert sample.targets[:16].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1, 0, 9, 5, 7, 9, 8]
    assert hashlib.sha256(pixels(sample)[:16].tobytes()).hexdigest() == FIRST_SIXTEEN


@pytest.mark.parametrize("model", ["resnet20-bn", "cct2"])
def test_the_demo_takes_another_bundled_model(model, memo, tmp_path):
    code, text, _ = memo("demo", "--model", model, "--out", tmp_path, "--points", 1)
    assert code == 0 and f"memo predict YOUR.png --model {model}" in text
    page = (tmp_path / "index.html").read_text("utf-8")
    assert ZOO[model].about in page and f"memo demo --model {model} --points 1" in page


def test_the_demo_loads_the_model_it_is_asked_for(memo, weights):
    code, _, error = memo("demo", "--model", "cct2", "--weights", weights)
    assert code == 1 and "CCT2" in error


def test_the_demo_names_the_models_it_has(memo):
    code, _, error = memo("demo", "--model", "resnet50")
    assert code == 2 and all(repr(name) in error for name in MODELS)
    assert all(bundled_error(name) is not None for name in MODELS)


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_change_the_pixels_and_nothing_else(name):
    sample = load_sample()
    data = shifted(sample, name)
    before, after = pixels(sample), pixels(data)
    assert data.name == name and after.dtype == np.uint8 and (data.targets == sample.targets).all()
    np.testing.assert_array_equal(after, pixels(shifted(sample, name)))
    difference = after.astype(float) - before
    if name == "clean":
        assert not difference.any()
    elif name == "noise":
        inside = (before > 100) & (before < 155)  # far from being clipped
        assert difference[inside].std() == pytest.approx(25.5, rel=0.02)
    else:
        assert after.std(axis=(1, 2)).mean() < 0.95 * before.std(axis=(1, 2)).mean()


def test_explanation_holds_the_views_and_both_answers():
    robust = Memo(build_classifier("group-norm"), n_views=5, lr=0.05)
    image = pictures(1)[0]
    seen = robust.explain(image, sample_id=3)
    plain = robust.predict(image, sample_id=3)
    assert torch.equal(seen.prediction.logits, plain.logits)
    with torch.no_grad():
        logits = robust.classifier.module.eval()(seen.views)
    torch.testing.assert_close(torch.stack([p.logits for p in seen.before]), logits)
    assert len(seen.after) == 5
    assert not torch.allclose(seen.after[0].logits, seen.before[0].logits)
    skipped = Memo(build_classifier("group-norm"), skip_confidence=1e-6).explain(image)
    assert not skipped.before and not len(skipped.views) and not skipped.prediction.adapted


def test_a_panel_marks_right_and_wrong_answers():
    before, after = [prediction("a"), prediction("b")], [prediction("b"), prediction("b")]
    panel = np.asarray(view_panel(pictures(2), before, after, target="b"))
    left, right = 110 + 10 + 48, 110 + 10 + 106 + 48  # centres of the two columns
    top_edges, bottom_edges = panel[8], panel[8 + 96 + 34 + 10]
    assert tuple(top_edges[left]) == WRONG and tuple(top_edges[right]) == RIGHT
    assert tuple(bottom_edges[left]) == RIGHT and tuple(bottom_edges[right]) == RIGHT


def test_the_page_needs_nothing_from_outside():
    figure = Figure(view_panel(pictures(1), [prediction("a")], [prediction("b")], "b"), "a <noisy> b")
    page = summary_page("Title", "Introduction.", "Use <memo>.", tables(), [figure], "made by hand")
    assert "54.0 %" in page and "−4.0" in page and "180 ms" in page and "made by hand" in page
    assert (
        "Use &lt;memo&gt;." in page and "&lt;noisy&gt;" in page and "&lt;b&gt;" in page and "<b>" not in page
    )
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page) and "$" not in page


def test_the_table_names_a_data_set_once():
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80, color_system="standard")
    console.print(summary_table(tables()))
    lines = output.getvalue().splitlines()[1:]
    words = [re.sub(r"\x1b\[\d+m", "", line).split() for line in lines]
    assert [line[:2] for line in words] == [["noise", "source"], ["memo", "50.0"], ["<b>", "source"]]
    assert words[1][1:] == ["50.0", "40.4", "to", "59.6", "-4.0", "180"]
    assert re.search(r"\[32m *-4\.0", lines[1])


def test_the_command_prints_a_table_and_writes_the_page(weights, tmp_path, capsys, monkeypatch):
    out = tmp_path / "demo"
    for extra in ("matplotlib", "pyarrow"):
        monkeypatch.setitem(sys.modules, extra, None)  # the demo needs no extra
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--weights", str(weights), "--out", str(out), "--points", "2"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    assert all(
        word in text
        for word in ("low contrast", "shifted", "restore", "Use ", "index.html", "Try next", "memo predict")
    )
    assert '<table class="wide summary">' in (out / "index.html").read_text("utf-8")


def test_pictures_show_what_was_helped_and_what_was_hurt():
    outcomes = [  # right before, right after
        ("noise", 0, True, True),
        ("noise", 2, False, True),
        ("noise", 3, False, True),
        ("blur", 4, True, False),
        ("blur", 5, False, True),
        ("blur", 6, True, False),
    ]
    records = [record("tta", 1, True, dataset="noise")]
    for dataset, position, before, after in outcomes:
        records.append(record("source", position, before, dataset=dataset))
        records.append(record("memo", position, after, dataset=dataset))
    chosen = [
        (verdict, shift, point.position)
        for verdict, shift, point in choose_examples(collect(records), "memo")
    ]
    assert chosen == [("corrected", "blur", 5), ("corrected", "noise", 2), ("made wrong", "blur", 4)]
