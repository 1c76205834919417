"""Compare memo-fast with memo on CIFAR-10, in error and time: python -m studies.memo_fast --help.

WEIGHTS are those of a ResNet-26; DATA defaults to cifar10 and cifar10+gaussian_noise:5.
"""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import click
import numpy as np

from memo_tta.data.catalog import load_parts
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.evaluation.statistics import paired
from memo_tta.methods import method
from memo_tta.models.zoo import load
from memo_tta.report.markdown import table_row

DATA = ("cifar10", "cifar10+gaussian_noise:5")
HEADS = ("data", "points", "memo", "memo-fast", "set right / made wrong", "adapted", "time, memo-fast / memo")


def measure(weights: Path, data: Dataset) -> str:
    """Return a table row; the methods alternate point by point, so that other load affects both alike."""
    classifier = load("resnet26", weights)
    methods = {name: method(name, classifier) for name in ("memo", "memo-fast")}
    seconds, wrong = dict.fromkeys(methods, 0.0), {name: list[bool]() for name in methods}
    adapted = 0
    for sample in data:
        for name, robust in methods.items():
            start = perf_counter()
            prediction = robust.predict(sample.image, sample_id=sample.id)
            seconds[name] += perf_counter() - start
            wrong[name].append(prediction.index != sample.target)
            adapted += name == "memo-fast" and prediction.adapted
    change = paired(wrong["memo-fast"], wrong["memo"], np.random.default_rng(0))
    errors = {name: f"{100 * sum(mistakes) / len(mistakes):.1f} %" for name, mistakes in wrong.items()}
    return table_row(
        [
            f"{data.name} {data.corruption or ''}",
            str(len(data)),
            errors["memo"],
            errors["memo-fast"],
            f"{change.helped} / {change.hurt}",
            f"{100 * adapted / len(data):.0f} %",
            f"{seconds['memo-fast'] / seconds['memo']:.2f}",
        ]
    )


@click.command(help=__doc__)
@click.argument("weights", type=click.Path(exists=True, path_type=Path))
@click.argument("points", default=1000)
@click.argument("data", nargs=-1)
def main(weights: Path, points: int, data: Sequence[str]) -> None:
    click.echo(table_row(HEADS))
    click.echo("|---" * len(HEADS) + "|")
    for spec in data or DATA:
        (part,) = load_parts(spec, None, None, 0)
        click.echo(measure(weights, balanced(part, points, 0)))


if __name__ == "__main__":
    main()
