"""Chooses the restorations, on validation corruptions and clean images alone.

The errors are those of the images that the choice is made on, the best of some 160 settings: too low. The
margin and the rule between equals were written down after a first look at the table.

python -m benchmarks.choose_restorations --help
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

SEED = 1  # other images than those of the tests
NAMES = tuple(RESTORATIONS)
CROPS = 8  # of every version
TEMPERATURES = (0, 1, 2, 4, 8, 16)
VIEWS = (4, 6, 8)  # per version
MARGIN = 0.003  # errors on corrupted images that count as equal


@dataclass(frozen=True)
class Answers:
    """Of one model on one part of the data: log-probabilities of every crop of every version."""

    part: str
    log_p: np.ndarray  # float32, (images, versions, crops, classes)
    label: np.ndarray


def parts(limit: int) -> list[Dataset]:
    """Clean images, five times as many, and every validation corruption at every level."""
    corrupted = load_parts("cifar10", VALIDATION, SEVERITIES)
    return [
        balanced(load_parts("cifar10")[0], 5 * limit, SEED),
        *(balanced(p, limit, SEED) for p in corrupted),
    ]


def answers(classifier: Classifier, part: Dataset) -> Answers:
    augment = Restore(classifier.size or 32, NAMES)
    rows = []
    with torch.no_grad():
        for sample in part:
            views = augment(sample.image, len(NAMES) * CROPS, sample_rng(SEED, sample.id))
            log_p = classifier(classifier.normalise(views)).log_softmax(dim=1)
            rows.append(log_p.view(len(NAMES), CROPS, -1).numpy())
    name = f"{part.corruption}-{part.severity}" if part.corruption else "clean"
    return Answers(name, np.stack(rows), part.y)


def collect(weights: Path | None, limit: int, folder: Path) -> Iterator[Answers]:
    """From files where they are there already."""
    classifier = load("resnet26", weights)
    classifier.module.eval()
    for part in parts(limit):
        file = folder / f"{part.corruption or 'clean'}-{part.severity}.npz"
        if not file.exists():
            found = answers(classifier, part)
            with whole_file(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, log_p=found.log_p, label=found.label, part=found.part)
            click.echo(f"{file}: {len(found.label)} images", err=True)
        with np.load(file) as stored:
            yield Answers(str(stored["part"]), stored["log_p"], stored["label"])


def error(found: Answers, versions: Sequence[int], views: int, temperature: float) -> float:
    """Of the weighted average over some versions, so many views of each."""
    p = np.exp(found.log_p[:, list(versions), :views]).mean(axis=2)  # (images, versions, classes)
    entropy = -(p * np.log(p + 1e-30)).sum(axis=2)
    weight = np.exp(-temperature * (entropy - entropy.min(axis=1, keepdims=True)))
    weight /= weight.sum(axis=1, keepdims=True)
    return float(((weight[..., None] * p).sum(axis=1).argmax(axis=1) != found.label).mean())


@dataclass(frozen=True)
class Choice:
    versions: tuple[int, ...]
    views: int
    temperature: float

    def errors(self, models: Sequence[Sequence[Answers]]) -> tuple[float, float]:
        """On corrupted and on clean images, averaged over models and parts."""
        found = [f for model in models for f in model]
        errors = {
            clean: [
                error(f, self.versions, self.views, self.temperature)
                for f in found
                if (f.part == "clean") == clean
            ]
            for clean in (False, True)
        }
        return float(np.mean(errors[False])), float(np.mean(errors[True]))


def grow(
    models: Sequence[Sequence[Answers]], views: int, temperature: float
) -> Iterator[tuple[Choice, float, float]]:
    """From the plain image on, always the version that lowers the error most."""
    chosen = Choice((0,), views, temperature)
    yield chosen, *chosen.errors(models)
    while len(chosen.versions) < len(NAMES):
        rest = [v for v in range(len(NAMES)) if v not in chosen.versions]
        tried = [Choice((*chosen.versions, v), views, temperature) for v in rest]
        chosen = min(tried, key=lambda choice: choice.errors(models)[0])
        yield chosen, *chosen.errors(models)


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--authors", type=click.Path(exists=True, path_type=Path), help="The authors' ResNet-26.")
@click.option("--limit", default=100, show_default=True, help="Images of each corruption at each level.")
def main(out: Path, authors: Path | None, limit: int) -> None:
    weights = {"shipped": None, **({"authors": authors} if authors else {})}
    models = [list(collect(path, limit, out / name)) for name, path in weights.items()]
    found = [
        row for views, temperature in product(VIEWS, TEMPERATURES) for row in grow(models, views, temperature)
    ]
    click.echo("| corrupted % | clean % | views | temperature | versions |\n|---|---|---|---|---|")
    for row in sorted(found, key=lambda row: row[1]):
        click.echo(shown(row))
    # Of those as good as the best on corrupted images, the best on clean ones; of equals, the most versions:
    # they cover more kinds of shift than there are among the validation corruptions.
    best = min(corrupted for _, corrupted, _ in found)
    good = [row for row in found if row[1] <= best + MARGIN]
    click.echo("\nChosen:\n" + shown(min(good, key=lambda row: (row[2], -len(row[0].versions)))))


def shown(row: tuple[Choice, float, float]) -> str:
    choice, corrupted, clean = row
    names = " ".join(NAMES[version] for version in choice.versions)
    return f"| {100 * corrupted:.2f} | {100 * clean:.2f} | {choice.views} | {choice.temperature} | {names} |"


if __name__ == "__main__":
    main()
