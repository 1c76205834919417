"""Draw the first picture of the README: python -m studies.overview_plot --help.

Errors are those of the authors' ResNet-26 in docs/reproduction.csv and docs/beyond.csv. Times are medians
of RUN:

memo evaluate cifar10 --model resnet26 --weights resnet26_gn.npz --methods source,tta,memo,restore
--option batch_points=1 --severities 5 --limit 20 --workers 1 --out RUN
"""

from pathlib import Path

import click

from memo_tta.data.corruptions.severity import TEST, CorruptionLevel
from memo_tta.evaluation.comparison import mean_error
from memo_tta.evaluation.results import ResultBlock
from memo_tta.files import atomic_file
from memo_tta.report.error_and_time_plot import ErrorRate, PlottedMethod, error_and_time_plot
from memo_tta.report.run import open_run
from studies.result_files import blocks, joined, read_csv

METHODS = ("source", "tta", "memo", "restore")
TITLES = ("CIFAR-10-C: 15 corruptions at level 5, 500 images each", "CIFAR-10: 10,000 clean images")


@click.command(help=__doc__)
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--docs", default="docs", show_default=True, type=click.Path(exists=True, path_type=Path))
def main(run: Path, docs: Path) -> None:
    rows = [row for name in ("reproduction", "beyond") for row in read_csv(docs / f"{name}.csv")]
    found = blocks(rows)
    clean = joined(found, "authors/cifar10", "authors/restore")
    shifted = joined(found, "authors/cifar10-c", "authors/restore-c")
    if clean is None or shifted is None:
        raise click.ClickException(f"{docs}: expected results in reproduction.csv and beyond.csv")
    levels = [CorruptionLevel(name, 5) for name in TEST]
    shifted = ResultBlock(shifted.dataset, {level: shifted.parts[level] for level in levels})
    ((_, table),) = open_run(run).tables
    seconds = {row.method: row.seconds for row in table}
    plotted = [
        PlottedMethod(name, seconds[name], _rate(clean, name), _rate(shifted, name)) for name in METHODS
    ]
    with atomic_file(docs / "overview.svg") as part:
        part.write_bytes(error_and_time_plot(plotted, TITLES))


def _rate(block: ResultBlock, method: str) -> ErrorRate:
    return ErrorRate(*mean_error(block, method))


if __name__ == "__main__":
    main()
