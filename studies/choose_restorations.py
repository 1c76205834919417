"""Chooses views, weights and early exit of `restore`: python -m studies.choose_restorations --help.

On the four validation corruptions at all levels and on clean images: none of the first 500 that an
evaluation with --limit 500 takes, and none of the 2,500 after them, on which the limits of the restorations
were set by hand. The rule, written before these images were seen (the last line then said "at most"):

- At most a tenth of a point more errors on clean images than test-time augmentation with 32 AugMix views.
- Of those, up to two tenths above the lowest error on corrupted images: test shifts are of more kinds than
  the four, so of nearly equal ones that which shows the image as it is most often, then the fewest views.
- Early exit at the lowest confidence that raises both errors by less than a tenth of a point.

Errors are averages over models and parts. Points that stop early at the highest confidence get no more views.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, product
from pathlib import Path

import click
import numpy as np
import torch

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import SEVERITIES, VALIDATION
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.files import atomic_file
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import load
from memo_tta.seeding import sample_rng
from memo_tta.views import AugMix
from memo_tta.views.restoration import RESTORATIONS
from memo_tta.views.restored_views import Restore

SEEN = 3000  # images that were reported or looked at before
CLEAN = 25  # times as many clean images as of a corruption at one level

FIRST = 2  # views of early exit
CONFIDENCES = (0.8, 0.9, 0.95)
PARTS = tuple(name for name in RESTORATIONS if name not in ("plain", "restored"))
COLLECTED = {"plain": 32, "restored": 32, **dict.fromkeys(PARTS, 8)}
AUGMIX = 32  # views, after the others
STARTS = dict(zip([*COLLECTED, "augmix"], accumulate(COLLECTED.values(), initial=0), strict=True))

VIEWS = (8, 16, 24, 32)
PLAIN = (0, 4, 2)  # one view in so many shows the image as it is; 0: none
TEMPERATURES = (0, 2, 8)
ARRAYS = ("source", "sure", "log_p", "label")  # of Answers, as they are stored
CLEAN_MARGIN, CLOSE, EXIT_MARGIN = 0.001, 0.002, 0.001


@dataclass(frozen=True)
class Answers:
    """Of one model on one part of the data."""

    is_clean: bool
    source: np.ndarray  # labels that the model gives the images themselves
    sure: np.ndarray  # confidence of the first views in that label; 0 where one of them says otherwise
    log_p: np.ndarray  # float32, (images that are less sure than the last of CONFIDENCES, views, classes)
    label: np.ndarray

    @cached_property
    def p(self) -> np.ndarray:
        return np.exp(self.log_p)


def fresh(part: Dataset, count: int) -> Dataset:
    """So many of the images that come after those seen."""
    seen, more = balanced(part, SEEN), balanced(part, SEEN + count)
    left_alone = {seen.id(position) for position in range(len(seen))}
    return more.take([position for position in range(len(more)) if more.id(position) not in left_alone])


def parts(count: int, clean: int = CLEAN) -> list[Dataset]:
    """Clean images, and every validation corruption at every level."""
    corrupted = load_parts("cifar10", VALIDATION, SEVERITIES)
    return [fresh(load_parts("cifar10")[0], clean * count), *(fresh(part, count) for part in corrupted)]


@torch.no_grad()
def answers(classifier: Classifier, part: Dataset) -> Answers:
    size = classifier.size or 32
    restore, augmix = Restore(size, COLLECTED), AugMix(size)
    rows, source, sure = [], [], []
    for sample in part:
        label = int(classifier(classifier.point(sample.image).x[None]).argmax())
        first = restore.preview(sample.image, FIRST, sample_rng(0, sample.id))
        p = classifier(classifier.normalise(first)).softmax(dim=1)
        source.append(label)
        sure.append(float(p[:, label].mean()) if (p.argmax(dim=1) == label).all() else 0.0)
        if sure[-1] < CONFIDENCES[-1]:
            rng = sample_rng(0, sample.id)
            views = [restore(sample.image, sum(COLLECTED.values()), rng), augmix(sample.image, AUGMIX, rng)]
            logits = [classifier(some) for some in classifier.normalise(torch.cat(views)).split(32)]
            rows.append(torch.cat(logits).log_softmax(dim=1).numpy())
    log_p = np.stack(rows) if rows else np.empty((0, STARTS["augmix"] + AUGMIX, 1), np.float32)
    return Answers(not part.corruption, np.array(source), np.array(sure), log_p, part.targets)


def collect(weights: Path | None, count: int, folder: Path) -> Iterator[Answers]:
    """From files where they are there already."""
    classifier = load("resnet26", weights)
    classifier.module.eval()
    for part in parts(count):
        file = folder / f"{part.corruption or 'clean'}-{part.severity}.npz"
        if not file.exists():
            found = answers(classifier, part)
            with atomic_file(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, **{name: getattr(found, name) for name in ARRAYS})
            click.echo(f"{file}: {len(found.label)} images", err=True)
        with np.load(file) as stored:
            yield Answers(not part.corruption, **{name: stored[name] for name in ARRAYS})


@dataclass(frozen=True)
class Choice:
    views: tuple[tuple[str, int], ...]  # how many show each version
    temperature: float = 0
    confidence: float = CONFIDENCES[-1]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.views)

    @property
    def plain(self) -> float:
        """Share of the views that show the image as it is."""
        return dict(self.views).get("plain", 0) / self.count

    def labels(self, found: Answers) -> tuple[np.ndarray, np.ndarray]:
        """What it answers, and which points stop early."""
        groups = [found.p[:, STARTS[name] : STARTS[name] + count].mean(axis=1) for name, count in self.views]
        p = np.stack(groups, axis=1)  # (images, versions, classes)
        entropy = -(p * np.log(p + 1e-30)).sum(axis=2)
        weight = np.exp(-self.temperature * (entropy - entropy.min(axis=1, keepdims=True)))
        weight *= [count for _, count in self.views]
        label = found.source.copy()
        label[found.sure < CONFIDENCES[-1]] = (weight[..., None] * p).sum(axis=1).argmax(axis=1)
        stops = found.sure >= self.confidence
        return np.where(stops, found.source, label), stops

    def errors(self, models: Sequence[Answers]) -> tuple[float, float]:
        """On corrupted and on clean images."""
        return _by_kind(models, lambda found: float((self.labels(found)[0] != found.label).mean()))

    def forwards(self, models: Sequence[Answers]) -> tuple[float, float]:
        """Views that go through the model, of corrupted and of clean images."""
        return _by_kind(models, lambda f: FIRST + self.count * float(1 - self.labels(f)[1].mean()))

    def shown(self, models: Sequence[Answers]) -> str:
        numbers = [f"{100 * error:.2f}" for error in self.errors(models)]
        numbers += [f"{count:.0f}" for count in self.forwards(models)]
        views = " + ".join(f"{count} {name}" for name, count in self.views)
        return f"| {views} | {self.temperature} | {self.confidence} | {' | '.join(numbers)} |"


def _by_kind(models: Sequence[Answers], number: Callable[[Answers], float]) -> tuple[float, float]:
    corrupted, clean = (
        float(np.mean([number(found) for found in models if found.is_clean == kind])) for kind in (0, 1)
    )
    return corrupted, clean


TTA = Choice((("augmix", AUGMIX),))
ALONE = [Choice(((name, 8),)) for name in COLLECTED]


def candidates() -> Iterator[Choice]:
    """The image and its restored version in several shares; all restorations on their own."""
    for count, one_in in product(VIEWS, PLAIN):
        if one_in == 0:
            yield Choice((("restored", count),))
            continue
        views = (("plain", count // one_in), ("restored", count - count // one_in))
        yield from (Choice(views, temperature) for temperature in TEMPERATURES)
    each = tuple((name, 8) for name in ("plain", *PARTS))
    for views in (each, (*each, ("restored", 8))):
        yield from (Choice(views, temperature) for temperature in TEMPERATURES)


def choose(models: Sequence[Answers]) -> Choice:
    """By the rule; without early exit at lower confidence."""
    limit = TTA.errors(models)[1] + CLEAN_MARGIN
    found = [(choice, *choice.errors(models)) for choice in candidates()]
    allowed = [(choice, corrupted) for choice, corrupted, clean in found if clean <= limit]
    lowest = min(corrupted for _, corrupted in allowed)
    near = [choice for choice, corrupted in allowed if corrupted <= lowest + CLOSE]
    return min(near, key=lambda choice: (-choice.plain, choice.count, choice.temperature))


def choose_exit(choice: Choice, models: Sequence[Answers]) -> Choice:
    limits = [error + EXIT_MARGIN for error in choice.errors(models)]
    for confidence in CONFIDENCES:
        sooner = replace(choice, confidence=confidence)
        if all(error < limit - 1e-9 for error, limit in zip(sooner.errors(models), limits, strict=True)):
            return sooner
    return choice


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--authors", type=click.Path(exists=True, path_type=Path), help="The authors' ResNet-26.")
@click.option("--limit", default=100, show_default=True, help="Images of each corruption at each level.")
def main(out: Path, authors: Path | None, limit: int) -> None:
    weights = {"shipped": None, **({"authors": authors} if authors else {})}
    models = [found for name, path in weights.items() for found in collect(path, limit, out / name)]
    heads = ["views", "temperature", "exit at", "corrupted %", "clean %", "views seen, corrupted", "clean"]
    click.echo(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    chosen = choose(models)
    sooner = [replace(chosen, confidence=confidence) for confidence in CONFIDENCES[:-1]]
    for choice in dict.fromkeys([TTA, *ALONE, *candidates(), *sooner]):
        click.echo(choice.shown(models))
    click.echo("\nChosen:\n" + choose_exit(chosen, models).shown(models))


if __name__ == "__main__":
    main()
