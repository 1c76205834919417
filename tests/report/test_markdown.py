"""Runs compared with the paper, as Markdown and in the pages that studies fill."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.evaluation.comparison import compare, mean_error
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.report.markdown import report_markdown, run_markdown
from memo_tta.report.paper_comparison import PaperComparison, compare_with_paper
from memo_tta.report.run import Run, open_run
from studies import beyond_page, beyond_runs, picture_runs, reproduction_page, result_files
from studies.page_markers import fill
from studies.reproduction_runs import steps
from tests.runs import random_records, record, write_run

CLEAN = CorruptionLevel("", 0)


def cifar_run(
    folder: Path,
    wrong: Mapping[str, int],
    points: int = 1000,
    model: str = "resnet26",
    shift: CorruptionLevel = CLEAN,
) -> Run:
    """Write a run in which each method is wrong on its first points, as many as given."""
    records = [
        record(method, position, position >= count, dataset="cifar10", **shift._asdict())
        for method, count in wrong.items()
        for position in range(points)
    ]
    job = EvaluationJob(data=("cifar10",), model=model, methods=tuple(wrong))
    return open_run(write_run(folder, records, job=job.as_dict()))


def paper_comparisons(run: Run) -> dict[str, PaperComparison]:
    ((block, rows),) = run.tables
    return {one.row.method: one for one in compare_with_paper(run, block, rows)}


def test_the_paper_agrees_where_its_figure_is_in_the_interval(tmp_path):
    # The paper: source 9.2, memo 7.3. Of 1000 points, 9.2 % has the interval 7.6 to 11.2.
    found = paper_comparisons(cifar_run(tmp_path / "near", {"source": 92, "memo": 73}))
    assert found["source"].agrees and found["memo"].agrees and found["memo"].change_agrees
    assert found["memo"].paper == 7.3 and found["memo"].paper_change == pytest.approx(-1.9)
    found = paper_comparisons(cifar_run(tmp_path / "far", {"source": 130, "memo": 73}))
    assert found["source"].agrees is False and found["memo"].agrees
    assert found["memo"].change_agrees is False  # -5.7 here
    assert found["source"].paper_change is None and found["source"].change_agrees is None


def test_other_models_have_no_paper_beside_them(tmp_path):
    run = cifar_run(tmp_path, {"source": 92, "memo": 73}, model="efficientnet_lite0")
    assert paper_comparisons(run) == {} and "paper" not in run_markdown(run)


def table_rows(text: str | None) -> dict[str, list[str]]:
    """Return the cells of all Markdown table rows by their first cell."""
    assert text is not None
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    return {row[0]: row[1:] for row in cells}


def test_the_table_has_ours_and_the_paper_s(memo, tmp_path):
    run = cifar_run(tmp_path / "run", {"source": 130, "memo": 73})
    file = tmp_path / "run.md"
    assert memo("report", run.folder, "--markdown", file)[0] == 0
    text = file.read_text("utf-8")
    assert text == report_markdown([run]) and text.startswith(run_markdown(run)) and run.command in text
    rows = table_rows(text)
    assert rows["source"][:3] == ["13.0 (9.2 ✗)", "11.1 to 15.2", ""]
    assert rows["memo"][0] == "7.3 (7.3 ✓)" and rows["memo"][2] == "-5.7 (-1.9 ✗)"
    assert rows["memo"][4] == "57 / 0"


def test_every_corruption_has_its_row(tmp_path):
    records = random_records([("fog", 1), ("fog", 5), ("snow", 5)], dataset="cifar10")
    facts = EvaluationJob(data=("cifar10",), model="resnet26").as_dict()
    run = open_run(write_run(tmp_path, records, job=facts))
    text = run_markdown(run)
    ((block, _),) = run.tables
    assert text.count("| fog |") == 2 and text.count("| snow |") == 1
    assert re.search(r"\| level 5 \| source \| tta \| memo \|", text)
    fog = 100 * block.parts[CorruptionLevel("fog", 1)]["source"].error
    assert f"| fog | {fog:.1f} (9.7) |" in text


def test_the_page_is_filled_and_filled_again(tmp_path):
    run = cifar_run(tmp_path / "run", {"source": 92, "memo": 73})
    kept = "<!-- run a/b -->\nelsewhere\n<!-- end -->\n"
    page = "Before.\n<!-- run authors/cifar10 -->\nold\n<!-- end -->\n" + kept
    commands = {"authors/cifar10": "memo evaluate it", "a/b": "memo evaluate that"}
    writers = {"run": lambda name: reproduction_page.one_run(name, {"authors/cifar10": run}, commands)}
    once = fill(page, writers)
    assert "old" not in once and "memo evaluate it\n" in once and "| memo | 7.3 (7.3 ✓)" in once
    assert once.endswith(kept) and once.startswith("Before.")
    assert fill(once, writers) == once


@pytest.mark.parametrize("steps", [steps, beyond_runs.steps, picture_runs.steps])
def test_every_step_is_a_command_that_exists(tmp_path, memo, steps):
    everything = list(steps(tmp_path / "given"))
    names = [step.name for step in everything]
    assert len(set(names)) == len(names)
    for command in {step.words[0] for step in everything}:
        options = {word for step in everything if step.words[0] == command for word in step.words}
        known = memo(command, "--help")[1]
        assert all(word in known for word in options if word.startswith("--"))


def committed(folder: Path, runs: Mapping[str, Run]) -> list[dict[str, str]]:
    """Return the rows of runs in the CSV file that is committed."""
    result_files.update_csv(folder / "results.csv", list(runs), runs)
    return result_files.read_csv(folder / "results.csv")


def test_the_csv_counts_what_is_wrong(tmp_path):
    run = cifar_run(tmp_path / "run", {"source": 92, "memo": 73})
    source, memo = committed(tmp_path, {"authors/cifar10": run})
    bits = source.pop("wrong_points")
    fields = ["authors/cifar10", "cifar10", "", "0", "source", "1000", "92", "9.2"]
    assert list(source.values()) == fields
    assert memo["wrong"] == "73" and memo["paper_error"] == "7.3"
    assert bits == "f" * 23 + "0" * (250 - 23)  # the first 92 of 1,000


def test_the_csv_keeps_the_rows_of_runs_that_are_elsewhere(tmp_path):
    file, names = tmp_path / "all.csv", ["a/first", "a/second"]
    first = cifar_run(tmp_path / "first", {"source": 92})
    result_files.update_csv(file, names, {"a/first": first})
    result_files.update_csv(file, names, {"a/second": cifar_run(tmp_path / "second", {"source": 73})})
    both = file.read_text()
    assert [(row["run"], row["wrong"]) for row in result_files.read_csv(file)] == [
        ("a/first", "92"),
        ("a/second", "73"),
    ]
    result_files.update_csv(file, names, {"a/first": first})
    assert file.read_text() == both


def test_methods_compare_in_the_csv_as_in_the_run(tmp_path):
    records = random_records([("fog", 1), ("fog", 5), ("snow", 5)], dataset="cifar10")
    run = open_run(
        write_run(tmp_path, records, job=EvaluationJob(data=("cifar10",), model="resnet26").as_dict())
    )
    ((block, _),) = run.tables
    stored = result_files.blocks(committed(tmp_path, {"a": run}))["a"]
    assert compare(stored, "memo", "source") == compare(block, "memo", "source")
    assert mean_error(stored, "tta") == mean_error(block, "tta")


def test_a_run_that_is_not_whole_is_counted_but_compared_with_none(tmp_path):
    run = cifar_run(tmp_path / "run", {"source": 92})
    run.metadata["total"] = 2000
    rows = committed(tmp_path, {"a": run})
    assert result_files.errors(rows) == {("a", ("", 0), "source"): 0.092} and result_files.blocks(rows) == {}


def test_runs_of_the_same_points_are_compared_as_one(tmp_path):
    """Of 1,000 points, memo gets 73 wrong, and restore the first 40 of them."""
    others = cifar_run(tmp_path / "others", {"source": 92, "tta": 80, "memo": 73})
    restore = cifar_run(tmp_path / "restore", {"restore": 40})
    fog = CorruptionLevel("fog", 5)
    runs = {
        "a/cifar10": others,
        "a/restore": restore,
        "a/cifar10-c": cifar_run(tmp_path / "c", {"source": 92, "tta": 80, "memo": 73}, shift=fog),
        "a/restore-c": cifar_run(tmp_path / "rc", {"restore": 100}, shift=fog),
    }
    rows, commands = committed(tmp_path, runs), {name: f"memo {name}" for name in runs}
    page = beyond_page.Page(rows, {}, commands)
    clean = table_rows(page.clean("a"))["clean"]
    assert clean[:4] == ["9.2", "8.0", "7.3", "4.0"]
    assert [cell.split()[0] for cell in clean[4:]] == ["-5.2", "-4.0", "-3.3"]
    levels = table_rows(page.levels("a"))
    assert (
        levels["level 5"][3] == "10.0"
        and levels["level 5"][6].startswith("+2.7 (+1.")
        and levels["all levels"] == levels["level 5"]
    )
    assert table_rows(page.corruptions("a"))["fog"][:4] == ["9.2", "8.0", "7.3", "10.0"]
    counted = [{**row, "wrong_points": ""} if row["run"] == "a/cifar10" else row for row in rows]
    assert table_rows(beyond_page.Page(counted, {}, commands).clean("a"))["clean"][4:] == [
        "-5.2",
        "-4.0",
        "-3.3",
    ]
    page = beyond_page.Page([row for row in rows if row["run"] != "a/restore-c"], {}, commands)
    assert page.clean("a") and page.levels("a") is None and page.corruptions("a") is None


def test_time_is_a_share_of_memo_s(tmp_path):
    run = cifar_run(tmp_path / "run", {"source": 92, "tta": 80, "memo": 73, "restore": 40}, points=100)
    page = beyond_page.Page([], {"a/time": run, "a/time-c": run}, {"a/time": "memo a", "a/time-c": "memo b"})
    rows = table_rows(page.time("a"))
    assert rows["clean"][4] == "1.00" and rows["clean"][0] == "0.500"
    assert rows["clean"][6] == "3.0"  # all stop early
    some = [replace(record("restore", position, True), status="averaged") for position in range(25)]
    others = [record("restore", position, True) for position in range(25, 100)]
    assert beyond_page.forward_passes(write_run(tmp_path / "some", [*some, *others])) == 3 + 12 / 4
