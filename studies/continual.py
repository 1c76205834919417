"""MEMO that never forgets, with and without an anchor, on a stream of mixed corruptions.

python -m studies.continual --help
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import SEVERITIES, TEST, VALIDATION
from memo_tta.evaluation.analysis import PointResults, mean_error
from memo_tta.evaluation.statistics import paired
from memo_tta.files import atomic_file
from memo_tta.report import formatting
from memo_tta.report.plots import BLUE, GREEN, GREY, RED, drawing
from memo_tta.report.run import open_run

WINDOW = 500  # points, in which no label should have most of the answers
DRAWN = 100  # points that a place of the plot looks back on
SEED = 11
METHODS = {"always": "source,memo", "never": "memo", "anchor": "memo"}  # by `reset`
NAMES = {"source": ("source", GREY), "always": ("episodic: reset after every point", BLUE)}
NAMES |= {"never": ("never reset", RED), "anchor": ("anchored", GREEN)}


def write_stream(file: Path, points: int, corruptions: Sequence[str]) -> None:
    """Test images of CIFAR-10 in random order, each with a corruption and a level by chance."""
    rng = np.random.default_rng(SEED)
    parts = load_parts("cifar10", corruptions, SEVERITIES)
    places = rng.permutation(len(parts[0]))[:points]
    shifts = rng.integers(len(parts), size=points)
    chosen = [parts[shift][int(place)] for shift, place in zip(shifts, places, strict=True)]
    x, y = np.stack([sample.image for sample in chosen]), np.array([sample.target for sample in chosen])
    with atomic_file(file) as part, part.open("wb") as opened:
        np.savez(opened, x=x, y=y)


def shares(predictions: np.ndarray, window: int) -> np.ndarray:
    """Of the commonest label among the last answers, for every place that has so many before it."""
    said = predictions[:, None] == np.unique(predictions)
    counts = np.concatenate([np.zeros((1, said.shape[1])), said.cumsum(axis=0)])
    return (counts[window:] - counts[:-window]).max(axis=1) / window


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(exists=True, path_type=Path), help="Other ones than the shipped.")
@click.option("--points", default=2000, show_default=True, type=click.IntRange(WINDOW))
@click.option("--validation", is_flag=True, help="The four validation corruptions instead of the 15.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw errors and shares over the stream here.")
def main(out: Path, weights: Path | None, points: int, validation: bool, plot: Path | None) -> None:
    stream = out / "stream.npz"
    if not stream.exists():
        write_stream(stream, points, VALIDATION if validation else TEST)
    lines: dict[str, PointResults] = {}
    click.echo(
        f"| weights | error % | 95 % | to episodic | 95 % | most on one label in any {WINDOW} points |"
    )
    click.echo("|---" * 6 + "|")
    for reset, methods in METHODS.items():
        words = ["evaluate", str(stream), "--model", "resnet26", "--methods", methods]
        words += ["--weights", str(weights)] if weights else []
        words += ["--option", f"memo.reset={reset}", "--out", str(out / reset)]
        if code := subprocess.run([sys.executable, "-m", "memo_tta", *words], stdout=sys.stderr).returncode:
            raise click.exceptions.Exit(code)
        (block,) = open_run(out / reset).blocks
        for method in block.methods:
            name = method if method == "source" else reset
            lines[name] = block.pooled(method)
            error, low, high = mean_error(block, method)
            most = shares(lines[name].prediction, WINDOW).max()
            cells = (
                NAMES[name][0],
                formatting.percent(error),
                formatting.span(low, high),
                *against(lines, name),
            )
            click.echo(f"| {' | '.join(cells)} | {most:.0%} |")
    if plot is not None:
        with atomic_file(plot) as part:
            part.write_bytes(draw(lines))


def against(lines: dict[str, PointResults], name: str) -> tuple[str, str]:
    """What a way to carry on changes in the error of points on their own, and its interval."""
    if name in ("source", "always"):
        return "", ""
    change = paired(lines[name].wrong, lines["always"].wrong, np.random.default_rng(SEED))
    return formatting.points(change.difference), formatting.change_span(change)


def draw(lines: dict[str, PointResults]) -> bytes:
    """Error and share of the commonest label among the last points, over the stream."""
    with drawing(6.4, 4.4) as result:
        upper, lower = result.figure.subplots(2, sharex=True)
        for key, answers in lines.items():
            name, colour = NAMES[key]
            x, window = np.arange(DRAWN, len(answers) + 1), np.ones(DRAWN) / DRAWN
            upper.plot(x, 100 * np.convolve(answers.wrong, window, "valid"), color=colour, label=name)
            lower.plot(x, 100 * shares(answers.prediction, DRAWN), color=colour)
        upper.set(ylabel="error %", ylim=(0, 100))
        lower.set(ylabel="most on one label, %", ylim=(0, 100), xlabel=f"point, over the {DRAWN} up to it")
        upper.legend(fontsize=8, ncols=2)
    return result.svg


if __name__ == "__main__":
    main()
