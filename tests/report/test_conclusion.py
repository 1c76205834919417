"""What a report says about the best method, where clean and shifted images are those of one data set."""

import re

import pytest

from memo_tta.evaluation.job import EvaluationJob
from memo_tta.report.conclusion import conclude
from memo_tta.report.examples import only_averages, shown_method
from memo_tta.report.html import run_page
from memo_tta.report.pairing import settings
from memo_tta.report.run import open_run
from tests.runs import record, write_run

FOG, CLEAN = ("fog", 3), ("", 0)
POINTS = 200
SECONDS = {"source": 0.002, "tta": 0.05, "restore": 0.025, "bn1": 0.003, "memo": 0.15}


def part(wrong, shift=FOG, dataset="made", harmed=0):
    """Return records in which each method is wrong on the first points, and on `harmed` of the last ones."""
    return [
        record(
            method,
            position,
            count <= position < POINTS - (0 if method == "source" else harmed),
            dataset=dataset,
            corruption=shift[0],
            severity=shift[1],
            seconds=SECONDS[method],
        )
        for method, count in wrong.items()
        for position in range(POINTS)
    ]


def run_of(folder, *parts, **metadata):
    records = [one for each in parts for one in each]
    methods = tuple(dict.fromkeys(one.method for one in records))
    job = EvaluationJob(data=("sample",), model="resnet26", methods=methods)
    return open_run(write_run(folder, records, job=job.as_dict(), **metadata))


def concluded(*runs):
    (setting,) = settings(runs)
    return conclude(setting)


SHIFTED = {"source": 80, "tta": 76, "restore": 40, "bn1": 79, "memo": 77}
UNHARMED = dict.fromkeys(SHIFTED, 20)


def test_the_finding_is_about_the_best_method(tmp_path):
    run = run_of(tmp_path, part(SHIFTED), part(UNHARMED, CLEAN))
    found = concluded(run)
    assert found.best == "restore"
    assert (
        "restore lowers the error of resnet26 on corrupted images of made from 40.0\u00a0% to 20.0\u00a0%:"
        in (found.finding)
    )
    assert re.search(r"20\.0 points fewer errors \(1[0-9.]+ to 2[0-9.]+\)", found.finding)
    assert "On clean images it makes as many errors" in found.finding
    assert "25\u00a0ms instead of 2.0." in found.finding and "memo" not in found.finding
    assert found.suggestion.startswith("Use restore: on shifted images 20.0 points fewer errors")
    assert found.next_steps == [
        "memo predict IMAGE --model resnet26 --method restore",
        "memo serve --model resnet26 --method restore",
    ]


def test_a_method_that_harms_clean_images_is_not_suggested(tmp_path):
    run = run_of(
        tmp_path,
        part({"source": 80, "restore": 40}),
        part({"source": 20, "restore": 20}, CLEAN, harmed=10),
    )
    found = concluded(run)
    assert found.best == "restore" and "more harm than allowed" in found.finding
    assert "On clean images it makes 5.0 points more errors" in found.finding
    assert found.suggestion.startswith("Use source") and "--method source" in found.next_steps[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"source": 80, "tta": 79, "memo": 78}, "memo comes closest, with 1.0 points fewer errors"),
        ({"source": 80, "tta": 90, "memo": 85}, "No method lowers the error of resnet26 on corrupted images"),
        ({"source": 80, "memo": 79}, "memo does not lower the error of resnet26 on corrupted images of made"),
    ],
)
def test_a_change_within_chance_is_no_gain(tmp_path, wrong, words):
    found = concluded(run_of(tmp_path, part(wrong)))
    assert words in found.finding and found.suggestion.startswith("Use source")


def test_without_clean_images_the_harm_is_unknown(tmp_path):
    found = concluded(run_of(tmp_path, part(SHIFTED)))
    assert "harm on clean images of made is unknown" in found.finding
    assert any("Harm of restore on clean images is unknown" in doubt for doubt in found.doubts)
    assert found.next_steps[0] == "memo advise sample --model resnet26"


def test_images_without_corruption_suggest_nothing(tmp_path):
    found = concluded(run_of(tmp_path, part({"source": 20, "tta": 18, "bn1": 40, "memo": 19}, CLEAN)))
    assert found.best == "tta" and "tta comes closest" in found.finding
    assert "bn1 is proven to make it worse" in found.finding
    assert found.suggestion.startswith("Nothing is suggested") and "advise" in found.next_steps[0]


def test_without_the_source_nothing_is_a_gain(tmp_path):
    found = concluded(run_of(tmp_path, part({"tta": 60, "memo": 50})))
    assert "memo has the lowest error" in found.finding and "unknown" in found.finding
    assert found.suggestion == "Nothing is suggested: the run has no results of source to compare with."
    assert found.next_steps[0].startswith("memo evaluate sample --model resnet26 --methods source,tta,memo")
    alone = concluded(run_of(tmp_path / "alone", part({"source": 60})))
    assert "is 30.0\u00a0%" in alone.finding and alone.suggestion.startswith("Nothing is suggested")


def pairs(*runs):
    """Return the data set of the shifted and of the clean block of each setting."""
    return [
        tuple(table and table[0].dataset for table in (found.shifted, found.clean))
        for found in settings(runs)
    ]


def test_clean_and_shifted_images_of_one_data_set_belong_together(tmp_path):
    few = {"source": 9, "memo": 8}
    run = run_of(
        tmp_path,
        *(part(few, CLEAN, name) for name in ("b", "cifar10", "alone")),
        *(part(few, FOG, name) for name in ("cifar10-c", "b", "c")),
    )
    found = pairs(run)
    assert len(found) == 4
    assert set(found) == {(None, "alone"), ("b", "b"), ("c", None), ("cifar10-c", "cifar10")}


def test_runs_of_one_model_belong_together(tmp_path):
    few = {"source": 9, "memo": 8}
    shifted = run_of(tmp_path / "shifted", part(few), fingerprint="a")
    clean = run_of(tmp_path / "clean", part(few, CLEAN), fingerprint="a")
    other = run_of(tmp_path / "other", part(few, CLEAN), fingerprint="b")
    assert pairs(shifted, clean) == [("made", "made")]
    assert pairs(shifted, other) == pairs(other, shifted)[::-1] == [("made", None), (None, "made")]
    assert pairs(shifted, clean, clean) == [("made", None), (None, "made"), (None, "made")]  # which one?


def cells(page, heading):
    """Return the words of the rows of the table below a heading, by the first cell."""
    table = page[page.index(f">{heading}</h2>") :]
    table = table[: table.index("</table>")]
    rows = re.findall(r"<tr class=\"(.*?)\"><th>(.*?)</th>(.*?)</tr>", table)
    return {
        name: (kind, [re.sub("<.*?>", " ", cell).split() for cell in re.findall("<td>(.*?)</td>", row)], row)
        for kind, name, row in rows
    }


def test_gain_stands_beside_harm(tmp_path):
    harmful = part({"memo": 20}, CLEAN, harmed=10)
    unharmed = part({"source": 20, "tta": 20, "restore": 20, "bn1": 20}, CLEAN)
    shifted = part({"source": 80, "tta": 78, "restore": 40, "bn1": 100, "memo": 30})
    page = run_page([run_of(tmp_path, shifted, unharmed, harmful)])
    rows = cells(page, "Gain and harm")
    assert {name: " ".join(row[1][-1]) for name, row in rows.items()} == {
        "source": "the model as it is",
        "tta": "not proven",
        "restore": "helps; harm not excluded",
        "bn1": "makes shifted images worse",
        "memo": "helps, but harms clean images",
    }
    assert {name for name, row in rows.items() if "chosen" in row[0]} == {"restore"}
    assert rows["restore"][1][0][0] == "−20.0" and rows["restore"][1][1][0] == "0.0"
    assert rows["memo"][1][1][0] == "+5.0" and rows["memo"][1][2] == ["150"]
    assert [name for name, row in rows.items() if "significant" in row[2].split("</td>")[0]] == [
        *("restore", "bn1", "memo")
    ]


def test_the_finding_comes_first_and_the_suggestion_last(memo, tmp_path):
    folder = run_of(tmp_path / "run", part(SHIFTED), part(UNHARMED, CLEAN)).folder
    code, out, _ = memo(
        "report",
        folder,
        "--html",
        tmp_path / "p.html",
        "--markdown",
        tmp_path / "p.md",
        "--csv",
        tmp_path / "c",
    )
    found = concluded(open_run(folder))
    assert code == 0 and out.splitlines()[-1] == found.suggestion
    assert (tmp_path / "p.md").read_text("utf-8").splitlines()[-1] == found.suggestion
    page = (tmp_path / "p.html").read_text("utf-8")
    after_title = page[page.index("</h1>") :]
    assert after_title.startswith(f'</h1>\n<p class="lead">{found.finding}</p>')
    last = page[page.index("What this suggests") : page.index("How to reproduce")]
    assert found.suggestion in last and found.next_steps[0] in last
    assert all(doubt.replace("'", "&#39;") in last for doubt in found.doubts) and found.doubts
    assert page.index("By class") < page.index("What this suggests")


def test_pictures_are_of_the_best_method_that_uses_views(tmp_path):
    block = run_of(tmp_path, part(SHIFTED)).blocks[0]
    assert shown_method(block, "restore") == "restore" and shown_method(block, "bn1") == "memo"
    few = run_of(tmp_path / "few", part({"source": 9, "bn1": 8})).blocks[0]
    assert shown_method(few, "bn1") is None
    assert only_averages("restore") and not only_averages("memo")
