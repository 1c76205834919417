"""The table of networks on docs/reproduction.md, from results with known figures."""

import numpy as np

from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.evaluation.results import ResultBlock
from studies.reproduction_page import NETWORKS, by_network
from studies.result_files import _point_results


def block(**wrong: int) -> ResultBlock:
    """Return a clean part of 100 points on which each method errs on the first ones."""
    results = {
        method.replace("_", "-"): _point_results(100, np.packbits(np.arange(100) < count).tobytes())
        for method, count in wrong.items()
    }
    return ResultBlock("made", {CorruptionLevel("", 0): results})


def test_each_network_has_its_errors_and_changes():
    blocks = {
        "shipped/cifar10": block(source=10, tta=8),
        "shipped/restore": block(restore=7),
        "shipped/tent": block(source=20, tent_bs1=21),
        "resnet20-bn/cifar10": block(source=30, bn1=25),
        "cct2/cifar10": block(source=40, memo=40),
    }
    text = by_network("clean", blocks)
    assert text is not None
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    rows = {line[1]: line[2:5] for line in cells}
    assert rows[""] == list(NETWORKS) and rows["source, error %"] == ["10.0", "30.0", "40.0"]
    assert rows["tta"][0].startswith("-2.0 (") and rows["restore"][0].startswith("-3.0 (")
    assert rows["tent-bs1"][0].startswith("+1.0 (")  # to the source on the same images
    assert rows["bn1"] == ["", rows["bn1"][1], ""] and rows["bn1"][1].startswith("-5.0 (")
    assert rows["memo"][2] == "0.0 (0.0 to 0.0)"


def test_nothing_is_written_while_a_network_is_missing():
    assert by_network("clean", {"shipped/cifar10": block(source=10)}) is None
