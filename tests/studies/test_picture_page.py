"""The page of large images shows what its runs and kept logits hold."""

from pathlib import Path

import numpy as np

from memo_tta.data.corruptions.severity import VALIDATION
from studies.page_markers import MARKED
from studies.picture_page import KINDS, NETWORKS, SOURCE, Page, kept_rows, update_kept
from studies.picture_runs import TRIED, steps
from studies.result_files import blocks, read_csv
from tests.conftest import ROOT

POINTS = 40


def row(run: str, method: str, wrong: int, shift: tuple[str, int] = ("", 0)) -> dict[str, str]:
    """Return the CSV row of a method that gets the first points wrong."""
    bits = np.packbits(np.arange(POINTS) < wrong).tobytes().hex()
    fields = {"run": run, "dataset": "pictures", "corruption": shift[0], "severity": str(shift[1])}
    return {**fields, "method": method, "points": str(POINTS), "wrong": str(wrong), "wrong_points": bits}


def cells(text: str | None) -> dict[str, list[str]]:
    assert text is not None
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:-1]] for line in lines}


def test_methods_are_compared_with_the_source_by_network(tmp_path):
    wrong = {"source": (4, 8, 12), "tta": (6, 6, 12), "bn1": (8, 8, 8), "restore": (2, 4, 12)}
    rows = [
        row(f"224/{network}/clean", method, counts[index])
        for index, network in enumerate(NETWORKS)
        for method, counts in wrong.items()
    ]
    commands = {f"224/{network}/clean": f"memo {network}" for network in NETWORKS}
    page = Page(blocks(rows), commands, tmp_path)
    shown = cells(page.forward("clean"))
    assert shown["source, error %"] == ["10.0", "20.0", "30.0", "20.0"]
    assert [cell.split()[0] for cell in shown["restore"]] == ["-5.0", "-10.0", "0.0", "-5.0"]
    assert [cell.split()[0] for cell in shown["bn1"]] == ["+10.0", "0.0", "-10.0", "0.0"]
    assert "memo mobilenet_v2" in str(page.forward("clean"))
    assert page.forward("corrupted") is None and page.memo("clean") is None


def test_corruptions_are_averaged_over_levels_and_networks(tmp_path):
    rows = [
        row(f"224/{network}/corrupted", method, wrong, ("fog", level))
        for network in NETWORKS
        for method, level, wrong in (
            ("source", 3, 8),
            ("source", 5, 16),
            ("restore", 3, 8),
            ("restore", 5, 8),
        )
    ]
    shown = cells(Page(blocks(rows), {}, tmp_path).corruptions("corrupted"))
    assert shown["fog"] == ["30.0 -10.0"] * 3 + ["-10.0"]


def keep(folder: Path, name: str, answers: list[list[int]]) -> None:
    """Write logits that give these answers: one row per picture, one column per view."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{name}.npy", 5 * np.eye(3, dtype=np.float16)[np.array(answers)])
    np.save(folder / "targets.npy", np.zeros(len(answers), int))


def test_kept_logits_become_rows(tmp_path):
    """The first view of a version answers, and the mean of other views."""
    part = tmp_path / "passes" / NETWORKS[0] / "fog-3"
    keep(part, SOURCE, [[0, 1], [1, 1], [0, 0]])
    keep(part, "zoomed-off", [[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]])
    found = {str(row["method"]): row for row in kept_rows(part.parent)}
    assert {name: row["wrong"] for name, row in found.items()} == {
        SOURCE: 1,
        "mirror-off": 1,
        "zoomed-off": 1,
    }
    assert found[SOURCE]["run"] == f"passes/{NETWORKS[0]}" and found[SOURCE]["severity"] == 3
    update_kept(tmp_path / "kept.csv", tmp_path)
    assert len(read_csv(tmp_path / "kept.csv")) == 3
    update_kept(tmp_path / "kept.csv", tmp_path / "elsewhere")
    assert len(read_csv(tmp_path / "kept.csv")) == 3  # rows of logits that are elsewhere stay


def test_kinds_of_views_stand_beside_each_other(tmp_path):
    rows = [
        row(f"kinds/{network}", method, wrong, shift)
        for network in TRIED
        for shift, offset in ((("", 0), 0), ((VALIDATION[0], 3), 20))
        for wrong, method in enumerate([SOURCE, *KINDS.values()], start=offset)
    ]
    shown = cells(Page(blocks(rows), {}, tmp_path).kept("kinds"))
    assert shown["source, error %"] == ["0.0", "50.0"] * 2
    changes = [cell.split()[0] for cell in shown["small translations"]]
    assert changes == ["+5.0"] * 4


def test_every_section_of_the_page_has_a_writer_and_every_experiment_a_name():
    text = (ROOT / "docs/pictures.md").read_text("utf-8")
    sections = {match[2] for match in MARKED.finditer(text)}
    assert sections == {"output", "forward", "memo", "trials", "kept", "corruptions"}
    names = [step.name for step in steps(Path("pictures"))]
    assert len(names) == len(set(names)) == len(NETWORKS) * 6 + len(TRIED) * 4
    assert not list(steps(None))
