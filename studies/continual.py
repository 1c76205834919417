"""Run MEMO without reset, with and without an anchor, on a stream of mixed corruptions.

python -m studies.continual --help
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import SEVERITIES, TEST, VALIDATION
from memo_tta.evaluation.comparison import mean_error
from memo_tta.evaluation.results import PointResults
from memo_tta.evaluation.statistics import paired
from memo_tta.files import atomic_file
from memo_tta.report import formatting
from memo_tta.report.markdown import table_row
from memo_tta.report.plots import BLUE, GREEN, GREY, RED, drawing
from memo_tta.report.run import open_run

WINDOW = 500  # points, among which no label should have most of the predictions
PLOT_WINDOW = 100  # points that a position of the plot averages over
SEED = 11
METHODS = {"always": "source,memo", "never": "memo", "anchor": "memo"}  # by `reset`
NAMES = {"source": ("source", GREY), "always": ("episodic: reset after every point", BLUE)}
NAMES |= {"never": ("never reset", RED), "anchor": ("anchored", GREEN)}
HEADS = ("weights", "error %", "95 %", "to episodic", "95 %", f"most on one label in any {WINDOW} points")


def write_stream(file: Path, points: int, corruptions: Sequence[str]) -> None:
    """Write test images of CIFAR-10 in random order, each with a random corruption and level."""
    rng = np.random.default_rng(SEED)
    parts = load_parts("cifar10", corruptions, SEVERITIES)
    positions = rng.permutation(len(parts[0]))[:points]
    shifts = rng.integers(len(parts), size=points)
    chosen = [parts[shift][int(position)] for shift, position in zip(shifts, positions, strict=True)]
    x, y = np.stack([sample.image for sample in chosen]), np.array([sample.target for sample in chosen])
    with atomic_file(file) as part, part.open("wb") as opened:
        np.savez(opened, x=x, y=y)


def shares(predictions: np.ndarray, window: int) -> np.ndarray:
    """Return the share of the most frequent label in each window of consecutive predictions."""
    one_hot = predictions[:, None] == np.unique(predictions)
    counts = np.concatenate([np.zeros((1, one_hot.shape[1])), one_hot.cumsum(axis=0)])
    return (counts[window:] - counts[:-window]).max(axis=1) / window


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(exists=True, path_type=Path), help="Default: the bundled ones.")
@click.option("--points", default=2000, show_default=True, type=click.IntRange(WINDOW))
@click.option("--validation", is_flag=True, help="The four validation corruptions instead of the 15.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw errors and shares over the stream here.")
def main(out: Path, weights: Path | None, points: int, validation: bool, plot: Path | None) -> None:
    stream = out / "stream.npz"
    if not stream.exists():
        write_stream(stream, points, VALIDATION if validation else TEST)
    results: dict[str, PointResults] = {}
    click.echo(table_row(HEADS))
    click.echo("|---" * len(HEADS) + "|")
    for reset, methods in METHODS.items():
        words = ["evaluate", str(stream), "--model", "resnet26", "--methods", methods]
        words += ["--weights", str(weights)] if weights else []
        words += ["--option", f"memo.reset={reset}", "--order", "data", "--out", str(out / reset)]
        if code := subprocess.run([sys.executable, "-m", "memo_tta", *words], stdout=sys.stderr).returncode:
            raise click.exceptions.Exit(code)
        (block,) = open_run(out / reset).blocks
        for method in block.methods:
            key = method if method == "source" else reset
            results[key] = block.pooled(method)
            error, low, high = mean_error(block, method)
            highest_share = shares(results[key].prediction, WINDOW).max()
            cells = [NAMES[key][0], formatting.percent(error), formatting.interval(low, high)]
            click.echo(table_row([*cells, *change_to_episodic(results, key), f"{highest_share:.0%}"]))
    if plot is not None:
        with atomic_file(plot) as part:
            part.write_bytes(draw(results))


def change_to_episodic(results: Mapping[str, PointResults], key: str) -> tuple[str, str]:
    """Return the difference to the episodic error and its interval; empty for source and episodic."""
    if key in ("source", "always"):
        return "", ""
    change = paired(results[key].wrong, results["always"].wrong, np.random.default_rng(SEED))
    return formatting.percentage_points(change.difference), formatting.change_interval(change)


def draw(results: Mapping[str, PointResults]) -> bytes:
    """Draw the error and the share of the most frequent label over the stream, as SVG."""
    with drawing(6.4, 4.4) as result:
        upper, lower = result.figure.subplots(2, sharex=True)
        for key, points in results.items():
            name, colour = NAMES[key]
            x, window = np.arange(PLOT_WINDOW, len(points) + 1), np.ones(PLOT_WINDOW) / PLOT_WINDOW
            upper.plot(x, 100 * np.convolve(points.wrong, window, "valid"), color=colour, label=name)
            lower.plot(x, 100 * shares(points.prediction, PLOT_WINDOW), color=colour)
        upper.set(ylabel="error %", ylim=(0, 100))
        xlabel = f"image, average over the last {PLOT_WINDOW}"
        lower.set(ylabel="most on one label, %", ylim=(0, 100), xlabel=xlabel)
        upper.legend(fontsize=8, ncols=2)
    return result.svg


if __name__ == "__main__":
    main()
