"""Chooses versions, temperature, views and early exit of `restore`: python -m benchmarks.choose_restorations.

On the four validation corruptions at all levels and on clean images, none of them among the first 500 that
an evaluation with --limit 500 takes. The rule was written before these images were seen, but after a like
table of 100 other images (with another rule, and without non-local means):

- The loss is the error on corrupted plus that on clean images, both averaged over models and parts.
- For every temperature and number of views, start from all versions, and leave one out as long as that
  lowers the loss by a tenth of a point: test shifts are of more kinds, so a version stays unless it harms.
- The lowest loss wins; of equals, the one with fewer views.
- Early exit: the fewest forward passes among those that raise the loss by a tenth of a point at most.

The losses printed are of the images that the choice is made on, so they are too low.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import click
import numpy as np
import torch

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import SEVERITIES, VALIDATION
from memo_tta.data.dataset import Dataset
from memo_tta.evaluation.summary import balanced
from memo_tta.files import whole_file
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import load
from memo_tta.seeding import sample_rng
from memo_tta.views.restorations import RESTORATIONS
from memo_tta.views.restore import Restore

REPORTED = 500  # the images of an evaluation that are left alone
NAMES = tuple(RESTORATIONS)
CROPS = 8  # of every version
TEMPERATURES = (0, 1, 2, 4, 8, 16)
VIEWS = (4, 6, 8)  # per version
EXITS = tuple(product((2, 4, 8), (0.8, 0.9, 0.95, 0.98)))  # views and their confidence
MARGIN = 0.001


@dataclass(frozen=True)
class Answers:
    """Of one model on one part of the data: log-probabilities of every crop of every version."""

    is_clean: bool
    log_p: np.ndarray  # float32, (images, versions, crops, classes)
    source: np.ndarray  # labels that the model gives the images themselves
    label: np.ndarray


def fresh(part: Dataset, count: int) -> Dataset:
    """So many of the images that come after the reported ones."""
    reported, more = balanced(part, REPORTED), balanced(part, REPORTED + count)
    left_alone = {reported.id(place) for place in range(len(reported))}
    return more.take([place for place in range(len(more)) if more.id(place) not in left_alone])


def parts(count: int) -> list[Dataset]:
    """Clean images, five times as many, and every validation corruption at every level."""
    corrupted = load_parts("cifar10", VALIDATION, SEVERITIES)
    return [fresh(load_parts("cifar10")[0], 5 * count), *(fresh(part, count) for part in corrupted)]


def answers(classifier: Classifier, part: Dataset) -> Answers:
    augment = Restore(classifier.size or 32, NAMES)
    rows, source = [], []
    with torch.no_grad():
        for sample in part:
            views = augment(sample.image, len(NAMES) * CROPS, sample_rng(0, sample.id))
            log_p = classifier(classifier.normalise(views)).log_softmax(dim=1)
            rows.append(log_p.view(len(NAMES), CROPS, -1).numpy())
            source.append(int(classifier(classifier.point(sample.image).x[None]).argmax()))
    return Answers(not part.corruption, np.stack(rows), np.array(source), part.y)


def collect(weights: Path | None, count: int, folder: Path) -> Iterator[Answers]:
    """From files where they are there already."""
    classifier = load("resnet26", weights)
    classifier.module.eval()
    for part in parts(count):
        file = folder / f"{part.corruption or 'clean'}-{part.severity}.npz"
        if not file.exists():
            found = answers(classifier, part)
            with whole_file(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, log_p=found.log_p, source=found.source, label=found.label)
            click.echo(f"{file}: {len(found.label)} images", err=True)
        with np.load(file) as stored:
            yield Answers(not part.corruption, stored["log_p"], stored["source"], stored["label"])


@dataclass(frozen=True)
class Choice:
    versions: tuple[int, ...]
    views: int  # per version
    temperature: float
    exit: tuple[int, float] | None = None

    def labels(self, found: Answers) -> tuple[np.ndarray, np.ndarray]:
        """What it answers, and which points stop early."""
        p = np.exp(found.log_p[:, self.versions, : self.views]).mean(axis=2)  # (images, versions, classes)
        entropy = -(p * np.log(p + 1e-30)).sum(axis=2)
        weight = np.exp(-self.temperature * (entropy - entropy.min(axis=1, keepdims=True)))
        weight /= weight.sum(axis=1, keepdims=True)
        label = (weight[..., None] * p).sum(axis=1).argmax(axis=1)
        if self.exit is None:
            return label, np.zeros(len(label), bool)
        first, confidence = self.exit
        p = np.exp(found.log_p[:, 0, :first])
        agree = (p.argmax(axis=2) == found.source[:, None]).all(axis=1)
        stops = agree & (p.mean(axis=1).max(axis=1) >= confidence)
        return np.where(stops, found.source, label), stops

    def errors(self, models: Sequence[Answers]) -> tuple[float, float]:
        """On corrupted and on clean images."""
        wrong = [(found.is_clean, float((self.labels(found)[0] != found.label).mean())) for found in models]
        corrupted, clean = ([w for is_clean, w in wrong if is_clean == kind] for kind in (False, True))
        return float(np.mean(corrupted)), float(np.mean(clean))

    def loss(self, models: Sequence[Answers]) -> float:
        return sum(self.errors(models))

    def forwards(self, models: Sequence[Answers]) -> float:
        """Views that go through the model, averaged over parts; clean images weigh as much as corrupted."""
        whole = len(self.versions) * self.views
        first = 0 if self.exit is None else self.exit[0]
        cost = [(f.is_clean, first + whole * float(1 - self.labels(f)[1].mean())) for f in models]
        return sum(float(np.mean([c for is_clean, c in cost if is_clean == kind])) for kind in (0, 1)) / 2

    def shown(self, models: Sequence[Answers]) -> str:
        corrupted, clean = self.errors(models)
        exit = "" if self.exit is None else f"{self.exit[0]} views, {self.exit[1]}"
        names = " ".join(NAMES[version] for version in self.versions)
        return (
            f"| {100 * corrupted:.2f} | {100 * clean:.2f} | {self.forwards(models):.0f} | {self.temperature} "
            f"| {exit} | {self.views} x {names} |"
        )


def shrink(models: Sequence[Answers], views: int, temperature: float) -> Choice:
    """All versions, but for those that do harm. The image itself always stays."""
    chosen = Choice(tuple(range(len(NAMES))), views, temperature)
    while len(chosen.versions) > 1:
        fewer = [
            replace(chosen, versions=tuple(v for v in chosen.versions if v != left_out))
            for left_out in chosen.versions[1:]
        ]
        best = min(fewer, key=lambda choice: choice.loss(models))
        if best.loss(models) > chosen.loss(models) - MARGIN:
            break
        chosen = best
    return chosen


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--authors", type=click.Path(exists=True, path_type=Path), help="The authors' ResNet-26.")
@click.option("--limit", default=200, show_default=True, help="Images of each corruption at each level.")
def main(out: Path, authors: Path | None, limit: int) -> None:
    weights = {"shipped": None, **({"authors": authors} if authors else {})}
    models = [found for name, path in weights.items() for found in collect(path, limit, out / name)]
    click.echo("| corrupted % | clean % | forwards | temperature | exit | views |\n|---|---|---|---|---|---|")
    alone = [Choice((version,), CROPS, 0) for version in range(len(NAMES))]
    everything = [shrink(models, views, temperature) for views, temperature in product(VIEWS, TEMPERATURES)]
    chosen = min(everything, key=lambda choice: (choice.loss(models), len(choice.versions) * choice.views))
    early = [replace(chosen, exit=exit) for exit in EXITS]
    for choice in [*alone, *everything, *early]:
        click.echo(choice.shown(models))
    good = [choice for choice in early if choice.loss(models) <= chosen.loss(models) + MARGIN]
    chosen = min([chosen, *good], key=lambda choice: choice.forwards(models))
    click.echo("\nChosen:\n" + chosen.shown(models))


if __name__ == "__main__":
    main()
