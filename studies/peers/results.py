"""What the runs of this study wrote: rows of docs/peers.csv, and the costs in docs/peers.json."""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

import numpy as np

from studies.result_files import COLUMNS

Measured = Mapping[str, Mapping[str, Mapping[str, Any]]]  # what `measurement` printed, by model and entry


def csv_rows(measured: Measured) -> Iterator[dict[str, object]]:
    """Yield a row for each model, part and entry, with the images that it got wrong."""
    for model, entries in measured.items():
        for name, found in entries.items():
            for part, result in found["parts"].items():
                corruption, severity = part.split() if " " in part else ("", part)
                bits = np.frombuffer(bytes.fromhex(result["wrong"]), np.uint8)
                wrong = int(np.unpackbits(bits, count=found["points"]).sum())
                row = (model, "sample", corruption, severity, name, found["points"], wrong)
                yield dict(zip(COLUMNS, (*row, "", result["wrong"]), strict=True))


def costs(measured: Measured) -> dict[str, dict[str, dict[str, float]]]:
    """Return each entry's time in forward passes, on clean and on corrupted images, and its memory."""
    return {
        model: {name: _cost(found) for name, found in entries.items()} for model, entries in measured.items()
    }


def _cost(found: Mapping[str, Any]) -> dict[str, float]:
    parts = dict(found["parts"])
    clean = parts.pop("0")["blocks"]
    corrupted = [block for result in parts.values() for block in result["blocks"]]
    return {
        "batch": min(found["batch"], found["points"]),
        "clean": _median_ratio(clean),
        "corrupted": _median_ratio(corrupted),
        "mib": found["peak_kib"] / 2**10,
    }


def _median_ratio(blocks: Iterable[tuple[float, float]]) -> float:
    return median(ratio for ratio, _ in blocks)
