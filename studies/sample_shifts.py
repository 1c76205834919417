"""Measure errors on the bundled images under shifts: python -m studies.sample_shifts --help.

METHODS and SHIFTS are comma-separated; SHIFTS are those of `memo demo`.
"""

import click
from rich.console import Console

from memo_tta.data.sample_images import SHIFTS, load_sample, shifted
from memo_tta.evaluation.comparison import method_results
from memo_tta.evaluation.records import Record
from memo_tta.evaluation.results import collect
from memo_tta.evaluation.runner import run
from memo_tta.methods import METHODS
from memo_tta.models.zoo import load
from memo_tta.report.terminal import summary_table


@click.command(help=__doc__)
@click.argument("model")
@click.argument("methods")
@click.argument("shifts", default=",".join(SHIFTS))
def main(model: str, methods: str, shifts: str) -> None:
    classifier = load(model)
    chosen = {name: METHODS[name](classifier) for name in methods.split(",")}
    datasets = [shifted(load_sample(), shift) for shift in shifts.split(",")]
    records = [row for data in datasets for row in run(data, chosen) if isinstance(row, Record)]
    Console().print(summary_table([(block, method_results(block)) for block in collect(records)]))


if __name__ == "__main__":
    main()
