"""Errors on the shipped images under shifts: python -m studies.sample_shifts MODEL METHOD,... [SHIFT,...]."""

import sys

from rich.console import Console

from memo_tta.data.sample_images import SHIFTS, load_sample, shifted
from memo_tta.evaluation.records import Record
from memo_tta.evaluation.runner import run
from memo_tta.evaluation.summary import summarise
from memo_tta.methods import METHODS
from memo_tta.models.zoo import load
from memo_tta.report.table import summary_table


def main(model: str, names: str, shifts: str = ",".join(SHIFTS)) -> None:
    classifier = load(model)
    methods = {name: METHODS[name](classifier) for name in names.split(",")}
    sets = [shifted(load_sample(), shift) for shift in shifts.split(",")]
    rows = [row for part in sets for row in run(part, methods) if isinstance(row, Record)]
    Console().print(summary_table(summarise(rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
