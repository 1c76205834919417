"""Committed CSV files of results: one row per run, part and method.

The records themselves stay on the machine that made them. Which points each method got wrong is enough to
compare methods point by point elsewhere.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from memo_tta.data.corruptions.severity import CORRUPTIONS, CorruptionLevel
from memo_tta.evaluation.results import PointResults, ResultBlock
from memo_tta.files import atomic_file
from memo_tta.report.paper_comparison import paper_figure
from memo_tta.report.run import Run

COLUMNS = ["run", "dataset", "corruption", "severity", "method", "points", "wrong", "paper_error"]
COLUMNS += ["wrong_points"]  # of a complete run: one bit per point, in order, as hexadecimal


def csv_rows(name: str, run: Run) -> Iterator[dict[str, object]]:
    """Yield the rows of one run."""
    order = {corruption: index for index, corruption in enumerate(["", *CORRUPTIONS])}
    for block, table in run.tables:
        for shift in sorted(block.parts, key=lambda shift: (order[shift.corruption], shift.severity)):
            for row in table:
                results = block.parts[shift].get(row.method)
                if results is not None:
                    paper, wrong = paper_figure(run, block, {shift}, row.method), results.wrong
                    bits = "" if run.missing else np.packbits(wrong).tobytes().hex()
                    fields = (name, block.dataset, *shift, row.method, len(wrong), int(wrong.sum()))
                    fields += (paper, bits)
                    yield dict(zip(COLUMNS, fields, strict=True))


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def update_csv(path: Path, names: Sequence[str], runs: Mapping[str, Run]) -> None:
    """Rewrite the rows of `runs` and keep those of other runs, in the order of `names`."""
    kept: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for row in read_csv(path):
        kept[row["run"]].append(row)
    write_csv(
        path, (row for name in names for row in (csv_rows(name, runs[name]) if name in runs else kept[name]))
    )


def write_csv(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows with COLUMNS; the file appears complete or not at all."""
    with atomic_file(path) as part, part.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def errors(rows: Sequence[Mapping[str, str]]) -> dict[tuple[str, CorruptionLevel, str], float]:
    """Return error rates by run, part and method."""
    return {(row["run"], _shift(row), row["method"]): int(row["wrong"]) / int(row["points"]) for row in rows}


def blocks(rows: Sequence[Mapping[str, str]]) -> dict[str, ResultBlock]:
    """Return a block for each complete run, in which only right and wrong predictions are known."""
    parts: dict[tuple[str, str], dict[CorruptionLevel, dict[str, PointResults]]] = {}
    for row in rows:
        if row["wrong_points"]:
            part = parts.setdefault((row["run"], row["dataset"]), {}).setdefault(_shift(row), {})
            part[row["method"]] = _point_results(int(row["points"]), bytes.fromhex(row["wrong_points"]))
    return {run: ResultBlock(dataset, found) for (run, dataset), found in parts.items()}


def joined(blocks: Mapping[str, ResultBlock], *names: str) -> ResultBlock | None:
    """Merge the methods of several runs on the same points; None unless all runs are there."""
    parts: dict[CorruptionLevel, dict[str, PointResults]] = {}
    if not all(name in blocks for name in names):
        return None
    for name in names:
        for shift, methods in blocks[name].parts.items():
            parts.setdefault(shift, {}).update(methods)
    return ResultBlock(blocks[names[-1]].dataset, parts)


def _shift(row: Mapping[str, str]) -> CorruptionLevel:
    return CorruptionLevel(row["corruption"], int(row["severity"]))


def _point_results(points: int, bits: bytes) -> PointResults:
    """Return results with target 0 everywhere and prediction 1 where a bit is set."""
    wrong = np.unpackbits(np.frombuffer(bits, np.uint8), count=points).astype(int)
    target, unknown = np.zeros(points, int), np.full(points, np.nan)
    return PointResults(np.arange(points), target, wrong, *[unknown] * 5)
