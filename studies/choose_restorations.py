"""Choose views, weights and early exit of `restore`: python -m studies.choose_restorations --help.

The data are the four validation corruptions at all levels and clean images: none of the first 500 that an
evaluation with --limit 500 takes, and none of the 2,500 after them, on which the limits of the restorations
were set by hand. The rule, written before these images were seen (the last line then said "at most"):

- At most a tenth of a point more errors on clean images than test-time augmentation with 32 AugMix views.
- Of those, up to two tenths above the lowest error on corrupted images: test shifts are of more kinds than
  the four, so of nearly equal candidates the one with the largest share of plain views, then with the fewest
  views.
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
from memo_tta.report.markdown import table_row
from memo_tta.seeding import sample_rng
from memo_tta.views import AugMix
from memo_tta.views.restoration import RESTORATIONS
from memo_tta.views.restored_views import Restore

SEEN = 3000  # images that were reported on or looked at before
CLEAN_RATIO = 25  # clean images per image of one corruption at one level

EARLY_VIEWS = 2
CONFIDENCES = (0.8, 0.9, 0.95)  # candidates for early exit
SINGLE_RESTORATIONS = tuple(name for name in RESTORATIONS if not name.startswith(("plain", "restored")))
COLLECTED = {"plain": 32, "restored": 32, **dict.fromkeys(SINGLE_RESTORATIONS, 8)}  # views by version
AUGMIX = 32  # AugMix views, stored after the others
STARTS = dict(zip([*COLLECTED, "augmix"], accumulate(COLLECTED.values(), initial=0), strict=True))

VIEWS = (8, 16, 24, 32)
PLAIN_ONE_IN = (0, 4, 2)  # one view in this many shows the image unrestored; 0: none
TEMPERATURES = (0, 2, 8)
CLEAN_MARGIN, CLOSE, EXIT_MARGIN = 0.001, 0.002, 0.001


@dataclass(frozen=True)
class ViewPredictions:
    """One model's predictions for the images of one part and for their views."""

    is_clean: bool
    source: np.ndarray  # predicted class of each image
    early_confidence: np.ndarray  # mean confidence of the early views in that class; 0 if one disagrees
    log_p: np.ndarray  # float32, (images below the last of CONFIDENCES, views, classes)
    target: np.ndarray

    @cached_property
    def p(self) -> np.ndarray:
        return np.exp(self.log_p)


# Fields of ViewPredictions, and the names of their arrays in stored files.
STORED = {"source": "source", "early_confidence": "sure", "log_p": "log_p", "target": "label"}


def unseen(part: Dataset, count: int) -> Dataset:
    """Return `count` of the images that come after those seen."""
    seen, more = balanced(part, SEEN), balanced(part, SEEN + count)
    excluded = {seen.id(position) for position in range(len(seen))}
    return more.take([position for position in range(len(more)) if more.id(position) not in excluded])


def parts(count: int, clean_ratio: int = CLEAN_RATIO) -> list[Dataset]:
    """Return clean images, and `count` images of every validation corruption at every level."""
    corrupted = load_parts("cifar10", VALIDATION, SEVERITIES)
    return [
        unseen(load_parts("cifar10")[0], clean_ratio * count),
        *(unseen(part, count) for part in corrupted),
    ]


@torch.no_grad()
def predict_views(classifier: Classifier, part: Dataset) -> ViewPredictions:
    """Predict the images of a part and, unless the early views are confident, all views of them."""
    size = classifier.size or 32
    restore, augmix = Restore(size, COLLECTED), AugMix(size)
    rows: list[np.ndarray] = []
    source: list[int] = []
    confidences: list[float] = []
    for sample in part:
        index = int(classifier(classifier.point(sample.image).x[None]).argmax())
        early = restore.preview(sample.image, EARLY_VIEWS, sample_rng(0, sample.id))
        p = classifier(classifier.normalise(early)).softmax(dim=1)
        source.append(index)
        confidences.append(float(p[:, index].mean()) if (p.argmax(dim=1) == index).all() else 0.0)
        if confidences[-1] < CONFIDENCES[-1]:
            rng = sample_rng(0, sample.id)
            views = [restore(sample.image, sum(COLLECTED.values()), rng), augmix(sample.image, AUGMIX, rng)]
            logits = [classifier(batch) for batch in classifier.normalise(torch.cat(views)).split(32)]
            rows.append(torch.cat(logits).log_softmax(dim=1).numpy())
    log_p = np.stack(rows) if rows else np.empty((0, STARTS["augmix"] + AUGMIX, 1), np.float32)
    return ViewPredictions(not part.corruption, np.array(source), np.array(confidences), log_p, part.targets)


def collect(weights: Path | None, count: int, folder: Path) -> Iterator[ViewPredictions]:
    """Yield the predictions on each part, from files in `folder`; missing files are computed first."""
    classifier = load("resnet26", weights)
    classifier.module.eval()
    for part in parts(count):
        file = folder / f"{part.corruption or 'clean'}-{part.severity}.npz"
        if not file.exists():
            found = predict_views(classifier, part)
            with atomic_file(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, **{name: getattr(found, field) for field, name in STORED.items()})
            click.echo(f"{file}: {len(found.target)} images", err=True)
        with np.load(file) as stored:
            yield ViewPredictions(
                not part.corruption, **{field: stored[name] for field, name in STORED.items()}
            )


@dataclass(frozen=True)
class Choice:
    """A candidate: which views, how they are weighted, and when to stop early."""

    views: tuple[tuple[str, int], ...]  # number of views of each version
    temperature: float = 0
    confidence: float = CONFIDENCES[-1]

    @property
    def count(self) -> int:
        """The number of views."""
        return sum(count for _, count in self.views)

    @property
    def plain_share(self) -> float:
        """The share of the views that show the image unrestored."""
        return dict(self.views).get("plain", 0) / self.count

    def predict(self, found: ViewPredictions) -> tuple[np.ndarray, np.ndarray]:
        """Return the predicted class of each image, and whether it stops early."""
        groups = [found.p[:, STARTS[name] : STARTS[name] + count].mean(axis=1) for name, count in self.views]
        p = np.stack(groups, axis=1)  # (images, versions, classes)
        entropy = -(p * np.log(p + 1e-30)).sum(axis=2)
        weight = np.exp(-self.temperature * (entropy - entropy.min(axis=1, keepdims=True)))
        weight *= [count for _, count in self.views]
        prediction = found.source.copy()
        has_views = found.early_confidence < CONFIDENCES[-1]
        prediction[has_views] = (weight[..., None] * p).sum(axis=1).argmax(axis=1)
        stops = found.early_confidence >= self.confidence
        return np.where(stops, found.source, prediction), stops

    def errors(self, parts: Sequence[ViewPredictions]) -> tuple[float, float]:
        """Return the error on corrupted and on clean images."""
        return _by_kind(parts, lambda found: float((self.predict(found)[0] != found.target).mean()))

    def forward_passes(self, parts: Sequence[ViewPredictions]) -> tuple[float, float]:
        """Return the mean number of views that are classified, of corrupted and of clean images."""
        return _by_kind(
            parts, lambda found: EARLY_VIEWS + self.count * float(1 - self.predict(found)[1].mean())
        )

    def table_row(self, parts: Sequence[ViewPredictions]) -> str:
        """Return the candidate and its results as a row of a Markdown table."""
        numbers = [f"{100 * error:.2f}" for error in self.errors(parts)]
        numbers += [f"{count:.0f}" for count in self.forward_passes(parts)]
        views = " + ".join(f"{count} {name}" for name, count in self.views)
        return table_row([views, str(self.temperature), str(self.confidence), *numbers])


def _by_kind(
    parts: Sequence[ViewPredictions], number: Callable[[ViewPredictions], float]
) -> tuple[float, float]:
    """Return the mean of a number over corrupted and over clean parts."""
    corrupted, clean = (
        float(np.mean([number(found) for found in parts if found.is_clean == is_clean]))
        for is_clean in (False, True)
    )
    return corrupted, clean


TTA = Choice((("augmix", AUGMIX),))
SINGLE_VERSIONS = [Choice(((name, 8),)) for name in COLLECTED]


def candidates() -> Iterator[Choice]:
    """Yield the image and its restored version in several shares, then all restorations side by side."""
    for count, one_in in product(VIEWS, PLAIN_ONE_IN):
        if one_in == 0:
            yield Choice((("restored", count),))
            continue
        views = (("plain", count // one_in), ("restored", count - count // one_in))
        yield from (Choice(views, temperature) for temperature in TEMPERATURES)
    each = tuple((name, 8) for name in ("plain", *SINGLE_RESTORATIONS))
    for views in (each, (*each, ("restored", 8))):
        yield from (Choice(views, temperature) for temperature in TEMPERATURES)


def choose(parts: Sequence[ViewPredictions]) -> Choice:
    """Return the candidate that the rule chooses, with early exit at the highest confidence."""
    limit = TTA.errors(parts)[1] + CLEAN_MARGIN
    found = [(choice, *choice.errors(parts)) for choice in candidates()]
    allowed = [(choice, corrupted) for choice, corrupted, clean in found if clean <= limit]
    lowest = min(corrupted for _, corrupted in allowed)
    near = [choice for choice, corrupted in allowed if corrupted <= lowest + CLOSE]
    return min(near, key=lambda choice: (-choice.plain_share, choice.count, choice.temperature))


def choose_exit(choice: Choice, parts: Sequence[ViewPredictions]) -> Choice:
    """Return the choice with the lowest confidence for early exit that the rule allows."""
    limits = [error + EXIT_MARGIN for error in choice.errors(parts)]
    for confidence in CONFIDENCES:
        earlier = replace(choice, confidence=confidence)
        if all(error < limit - 1e-9 for error, limit in zip(earlier.errors(parts), limits, strict=True)):
            return earlier
    return choice


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--authors", type=click.Path(exists=True, path_type=Path), help="The authors' ResNet-26.")
@click.option("--limit", default=100, show_default=True, help="Images of each corruption at each level.")
def main(out: Path, authors: Path | None, limit: int) -> None:
    weights = {"shipped": None, **({"authors": authors} if authors else {})}
    found = [part for name, path in weights.items() for part in collect(path, limit, out / name)]
    heads = ["views", "temperature", "exit at", "corrupted %", "clean %", "views seen, corrupted", "clean"]
    click.echo(f"{table_row(heads)}\n|{'---|' * len(heads)}")
    chosen = choose(found)
    earlier = [replace(chosen, confidence=confidence) for confidence in CONFIDENCES[:-1]]
    for choice in dict.fromkeys([TTA, *SINGLE_VERSIONS, *candidates(), *earlier]):
        click.echo(choice.table_row(found))
    click.echo("\nChosen:\n" + choose_exit(chosen, found).table_row(found))


if __name__ == "__main__":
    main()
