"""Results as small CSV files that are committed: a row for every run, part and method.

Records stay where they were made. What they say of each point, right or wrong, is enough to compare methods
point by point on another machine.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from memo_tta.data.corruptions.severity import CORRUPTIONS
from memo_tta.evaluation.analysis import CorruptionLevel, PointResults, ResultBlock
from memo_tta.files import atomic_file
from memo_tta.report.paper_comparison import paper_figure
from memo_tta.report.run import Run

COLUMNS = ["run", "dataset", "corruption", "severity", "method", "points", "wrong", "paper_error"]
COLUMNS += ["wrong_points"]  # of a whole run: a bit for each point, in order, as hexadecimal


def csv_rows(name: str, run: Run) -> Iterator[dict[str, object]]:
    """Of one run."""
    order = {corruption: index for index, corruption in enumerate(["", *CORRUPTIONS])}
    for block, table in run.tables:
        for shift in sorted(block.parts, key=lambda shift: (order[shift.corruption], shift.severity)):
            for row in table:
                answers = block.parts[shift].get(row.method)
                if answers is not None:
                    paper, wrong = paper_figure(run, block, {shift}, row.method), answers.wrong
                    bits = "" if run.missing else np.packbits(wrong).tobytes().hex()
                    fields = (name, block.dataset, *shift, row.method, len(wrong), int(wrong.sum()))
                    fields += (paper, bits)
                    yield dict(zip(COLUMNS, fields, strict=True))


def read_csv(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def update_csv(path: Path, names: Sequence[str], runs: Mapping[str, Run]) -> None:
    """The rows of these runs anew, in the order of the names; rows of runs that are elsewhere as they are."""
    kept: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for row in read_csv(path):
        kept[row["run"]].append(row)
    with atomic_file(path) as part, part.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for name in names:
            table.writerows(csv_rows(name, runs[name]) if name in runs else kept[name])


def errors(rows: Sequence[Mapping[str, str]]) -> dict[tuple[str, CorruptionLevel, str], float]:
    """By run, part and method."""
    return {(row["run"], _shift(row), row["method"]): int(row["wrong"]) / int(row["points"]) for row in rows}


def blocks(rows: Sequence[Mapping[str, str]]) -> dict[str, ResultBlock]:
    """Of every whole run: which points each method got wrong, and no more."""
    parts: dict[tuple[str, str], dict[CorruptionLevel, dict[str, PointResults]]] = {}
    for row in rows:
        if row["wrong_points"]:
            part = parts.setdefault((row["run"], row["dataset"]), {}).setdefault(_shift(row), {})
            part[row["method"]] = _answers(int(row["points"]), bytes.fromhex(row["wrong_points"]))
    return {run: ResultBlock(dataset, found) for (run, dataset), found in parts.items()}


def _shift(row: Mapping[str, str]) -> CorruptionLevel:
    return CorruptionLevel(row["corruption"], int(row["severity"]))


def _answers(points: int, bits: bytes) -> PointResults:
    wrong = np.unpackbits(np.frombuffer(bits, np.uint8), count=points).astype(int)
    label, unknown = np.zeros(points, int), np.full(points, np.nan)
    return PointResults(np.arange(points), label, wrong, unknown, unknown, unknown, unknown)
