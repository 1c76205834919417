"""Compare memo-fast with memo, in error and time: python -m studies.memo_fast --help.

Each DATA is a data set with a corruption and its level, as in cifar10+gaussian_noise:5, or without.
"""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import click
import numpy as np

from memo_tta.data.catalog import load_parts
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.evaluation.class_matching import match_classes
from memo_tta.evaluation.statistics import paired
from memo_tta.methods import method
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import load
from memo_tta.report.markdown import table_row
from memo_tta.workers import prepare_process

HEADS = ("data", "points", "memo", "memo-fast", "set right / made wrong", "adapted", "time, memo-fast / memo")


def measure(whole: Classifier, data: Dataset) -> str:
    """Return a table row; the methods alternate point by point, so that other load affects both alike."""
    classifier, data = match_classes(whole, data)
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
@click.argument("model")
@click.argument("data", nargs=-1, required=True)
@click.option("--weights", type=click.Path(exists=True, path_type=Path), help="Weights of the model.")
@click.option("--images", default=1000, show_default=True, help="Images of each DATA.")
@click.option("--seed", default=0, show_default=True, help="Seed of the choice of images.")
def main(model: str, data: Sequence[str], weights: Path | None, images: int, seed: int) -> None:
    prepare_process()
    classifier = load(model, weights)
    click.echo(table_row(HEADS))
    click.echo("|---" * len(HEADS) + "|")
    for spec in data:
        (part,) = load_parts(spec, None, None, 0)
        click.echo(measure(classifier, balanced(part, images, seed)))


if __name__ == "__main__":
    main()
