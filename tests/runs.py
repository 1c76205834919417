"""Synthetic records and runs with known figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memo_tta.evaluation.records import Record
from memo_tta.evaluation.store import open_for_writing

CLASSES = 5


def record(method: str, position: int, right: bool, **values: Any) -> Record:
    """Return a record of class position % 5, predicted correctly or as the next class."""
    target = position % CLASSES
    prediction = target if right else (target + 1) % CLASSES
    given = {"dataset": "made", "corruption": "", "severity": 0, "score": 0.75, "seconds": 0.5, **values}
    return Record(
        **given,
        position=position,
        sample=f"s{position}",
        method=method,
        target=target,
        prediction=prediction,
        entropy_before=1.0,
        entropy_after=0.5,
        marginal_entropy=0.75 if method == "memo" else None,
        adapted=method == "memo",
        status="adapted" if method == "memo" else "gated",
        reason=None if method == "memo" else "nothing to adapt",
        views_seconds=0.125,
        predict_seconds=0.25,
        shift=None,
    )


def random_records(
    parts: Sequence[tuple[str, int]],
    points: int | Sequence[int] = 40,
    methods: Sequence[str] = ("source", "tta", "memo"),
    dataset: str = "made",
    seed: int = 0,
) -> list[Record]:
    """Return random records, two thirds of them right; `points` is the size of every part, or of each."""
    rng = np.random.default_rng(seed)
    sizes = [points] * len(parts) if isinstance(points, int) else points
    return [
        record(
            method,
            position,
            bool(rng.random() < 2 / 3),
            dataset=dataset,
            corruption=corruption,
            severity=severity,
            score=float(rng.uniform(0.3, 1)),
            seconds=float(rng.uniform(0.4, 1)),
        )
        for (corruption, severity), size in zip(parts, sizes, strict=True)
        for method in methods
        for position in range(size)
    ]


def write_run(folder: Path, records: Sequence[Record], **metadata: Any) -> Path:
    """Write a run as `memo evaluate` does, a finished one unless `total` is given; return its folder."""
    with open_for_writing(folder) as store:
        store.save_metadata({"total": len(records), **metadata})
        store.add(records)
    return folder
