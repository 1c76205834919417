"""The demo: pictures, page and command, on random weights."""

import hashlib
import re

import numpy as np
import pytest
import torch

from memo_tta.cli import main
from memo_tta.cli.demo import _telling
from memo_tta.data.sample_images import SHIFTS, load_sample, shifted
from memo_tta.evaluation.records import Record
from memo_tta.evaluation.summary import Summary
from memo_tta.methods import Memo, Prediction
from memo_tta.report.html import Figure, demo_page
from memo_tta.report.table import summary_table
from memo_tta.report.view_panel import RIGHT, WRONG, view_panel
from tests.nets import build_classifier, pictures

ROWS = [
    Summary("noise", "source", 100, 0.54, 0.44, 0.63, 0.007),
    Summary("noise", "memo", 100, 0.5, 0.4, 0.6, 0.18),
    Summary("<b>", "source", 100, 0.1, 0.05, 0.2, 0.007),
]

# SHA-256 of the first images of CIFAR-10's test set, 32 x 32 x 3 bytes each.
FIRST_SIXTEEN = "9ba28c0857ab703c5a211ab6a9c3418c65bfae0cb717fcbd1e78e8cfd343ad8b"


def answer(label: str) -> Prediction:
    return Prediction(torch.tensor([5.0 * (label == name) for name in "abc"]), tuple("abc"))


def test_sample_images_are_balanced_and_those_of_the_test_set():
    sample = load_sample()
    assert sample.images.shape == (500, 32, 32, 3) and np.bincount(sample.targets).tolist() == [50] * 10
    assert sample.targets[:16].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1, 0, 9, 5, 7, 9, 8]
    assert hashlib.sha256(np.array(sample.images[:16]).tobytes()).hexdigest() == FIRST_SIXTEEN


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_change_the_pixels_and_nothing_else(name):
    sample = load_sample()
    spoilt = shifted(sample, name)
    assert (
        spoilt.name == name and spoilt.images.dtype == np.uint8 and (spoilt.targets == sample.targets).all()
    )
    np.testing.assert_array_equal(spoilt.images, shifted(sample, name).images)
    difference = spoilt.images.astype(float) - sample.images
    if name == "clean":
        assert not difference.any()
    elif name == "noise":
        inside = (sample.images > 100) & (sample.images < 155)  # far from being clipped
        assert difference[inside].std() == pytest.approx(25.5, rel=0.02)
    else:
        assert spoilt.images.std(axis=(1, 2)).mean() < 0.95 * sample.images.std(axis=(1, 2)).mean()


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
    before, after = [answer("a"), answer("b")], [answer("b"), answer("b")]
    panel = view_panel(pictures(2), before, after, truth="b")
    pixels = np.asarray(panel)
    left, right = 110 + 10 + 48, 110 + 10 + 106 + 48  # centres of the two columns
    top_edges, bottom_edges = pixels[8], pixels[8 + 96 + 34 + 10]
    assert tuple(top_edges[left]) == WRONG and tuple(top_edges[right]) == RIGHT
    assert tuple(bottom_edges[left]) == RIGHT and tuple(bottom_edges[right]) == RIGHT


def test_the_page_needs_nothing_from_outside():
    figure = Figure(view_panel(pictures(1), [answer("a")], [answer("b")], "b"), "a <noisy> b")
    page = demo_page(ROWS, [figure], "made by hand")
    assert "54.0 %" in page and "-4.0" in page and "made by hand" in page
    assert "&lt;noisy&gt;" in page and "&lt;b&gt;" in page and "<b>" not in page
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page) and "$" not in page


def test_the_table_names_a_data_set_once():
    table = summary_table(ROWS)
    assert list(table.columns[0].cells) == ["noise", "", "<b>"]
    assert list(table.columns[4].cells) == ["", "[green]-4.0[/]", ""]


def test_the_command_prints_a_table_and_writes_the_page(weights, tmp_path, capsys):
    out = tmp_path / "demo"
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--weights", str(weights), "--out", str(out), "--points", "2"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    assert all(word in text for word in ("low contrast", "memo", "index.html", "Try next", "memo predict"))
    assert "<table>" in (out / "index.html").read_text("utf-8")


def record(dataset: str, position: int, right: bool, method: str = "memo") -> Record:
    return Record(
        dataset,
        "",
        0,
        position,
        str(position),
        method,
        0,
        int(not right),
        0.9,
        0.1,
        0.1,
        None,
        True,
        "adapted",
        None,
        0.1,
        0.0,
        0.0,
    )


def test_pictures_show_what_was_helped_and_what_was_hurt():
    answers = [  # right before, right after
        ("noise", 0, True, True),
        ("noise", 2, False, True),
        ("noise", 3, False, True),
        ("blur", 4, True, False),
        ("blur", 5, False, True),
        ("blur", 6, True, False),
    ]
    records = [record("noise", 1, True, method="tta")]
    for dataset, position, before, after in answers:
        records += [record(dataset, position, before, "source"), record(dataset, position, after)]
    chosen = [(verdict, r.dataset, r.position) for verdict, r in _telling(records)]
    assert chosen == [("set right", "blur", 5), ("set right", "noise", 2), ("made wrong", "blur", 4)]
