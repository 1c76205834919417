"""Measure the error of a ResNet-26 under each corruption: python -m studies.corruption_errors --help.

Prints a table row per corruption, for the first POINTS test images of CIFAR-10 (`memo data get cifar10`).
"""

from collections.abc import Iterator, Sequence

import click
import numpy as np
import torch

import memo_tta as mt
from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions import CORRUPTIONS
from memo_tta.data.dataset import Dataset
from memo_tta.workers import available_cores, ordered_map

BATCH = 250
LEVELS = (5, 3)

Job = tuple[str, str, int, int]  # weights, corruption, level, points


def error_percent(job: Job) -> float:
    """Return the error on one part of the data, in percent; runs in a worker process."""
    weights, corruption, level, points = job
    torch.set_num_threads(1)
    classifier = mt.load("resnet26", weights=weights)
    dataset = load_parts("cifar10", [corruption], [level])[0].take(range(points))
    return 100 * float(np.mean([wrong for batch in _batches(dataset) for wrong in _wrong(classifier, batch)]))


def _batches(dataset: Dataset) -> Iterator[Dataset]:
    for start in range(0, len(dataset), BATCH):
        yield dataset.take(range(start, min(start + BATCH, len(dataset))))


@torch.no_grad()
def _wrong(classifier: mt.Classifier, batch: Dataset) -> list[bool]:
    x = torch.stack([classifier.point(image).x for _, image, _ in batch])
    return (classifier(x).argmax(1).numpy() != batch.targets).tolist()


@click.command(help=__doc__)
@click.argument("weights")
@click.argument("points", default=1000)
@click.argument("levels", nargs=-1, type=int)
def main(weights: str, points: int, levels: Sequence[int]) -> None:
    levels = levels or LEVELS
    jobs = [(weights, corruption, level, points) for corruption in CORRUPTIONS for level in levels]
    errors = iter(ordered_map(error_percent, jobs, available_cores()))
    for corruption in CORRUPTIONS:
        row = [f"{next(errors):5.1f}" for _ in levels]
        click.echo(f"| {corruption:17} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
