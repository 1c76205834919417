"""Measure whether a gradient step adds to restored views: python -m studies.choose_step --help.

One step on the entropy of the weighted average, then the prediction of the point, of the average again, or
of the surest version, next to the same without a step. Images, views and early exit are those of
studies.choose_restorations; points that stop early get no step. With a step, a view costs three forward
passes, and a fourth if the prediction comes from the views. The rule: a step is taken if it lowers the error
on corrupted plus that on clean images by 0.2 points, compared with the best answer without one.
"""

from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor

from memo_tta.data.dataset import Dataset
from memo_tta.files import atomic_file
from memo_tta.methods import METHODS
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import ForwardPass
from memo_tta.methods.parameters import choose_parameters
from memo_tta.methods.update import UPDATE_RULES
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import load
from memo_tta.objectives import entropy, group_log_probabilities, weighted_log_probabilities
from memo_tta.seeding import sample_rng
from memo_tta.views.restored_views import Restore
from studies.choose_restorations import parts

RATES = (0.0025, 0.005, 0.01, 0.02)
PREDICTIONS = ("point", "average", "surest version")
NAMES = [f"{step}, {kind}" for step, kind in product(("no step", *RATES), PREDICTIONS)]  # candidates
CLEAN_RATIO = 5  # clean images per image of one corruption at one level
ROW = METHODS["restore"].defaults


class Study:
    """The candidates of one model."""

    def __init__(self, classifier: Classifier):
        self.classifier = classifier
        self.augment = Restore(classifier.size or 32)
        self.parameters = choose_parameters(classifier.module, "all")

    def predict(self, image: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, int]]:
        """Yield the name and the predicted class of every candidate."""
        x = self.classifier.point(image).x[None]
        with episode(self.classifier.module, self.parameters):
            early = self._early_prediction(image, x, deepcopy(rng))
            if early is not None:
                yield from ((name, early) for name in NAMES)
                return
            views = self.classifier.normalise(self.augment(image, ROW["n_views"], rng))
            forward = ForwardPass(self.classifier, views, None)
            gradients = forward.gradient(entropy(self._average(forward.logits)), self.parameters)
            source = [parameter.detach().clone() for parameter in self.parameters]
            predicted = [*self._predictions(self.classifier(x)[0], forward.logits.detach())]
            with torch.no_grad():
                for rate in RATES:
                    UPDATE_RULES["sgd"](rate, 0.0, 0.0).step(self.parameters, gradients)
                    predicted += self._predictions(self.classifier(x)[0], self.classifier(views))
                    for parameter, value in zip(self.parameters, source, strict=True):
                        parameter.copy_(value)
            yield from zip(NAMES, predicted, strict=True)

    def _predictions(self, point: Tensor, logits: Tensor) -> Iterator[int]:
        """Yield the class predicted by each of PREDICTIONS, from the logits of the point and its views."""
        averages, _ = group_log_probabilities(logits, self._groups(len(logits)))
        surest = averages[entropy(averages).argmin()]
        yield from (int(scores.argmax()) for scores in (point, self._average(logits), surest))

    @torch.no_grad()
    def _early_prediction(self, image: np.ndarray, x: Tensor, rng: np.random.Generator) -> int | None:
        """Return the source's prediction if the early views agree with confidence, else None."""
        views = self.augment.preview(image, ROW["early_views"], rng)
        scores = self.classifier(self.classifier.normalise(views)).softmax(dim=1)
        index = int(self.classifier(x)[0].argmax())
        agrees = bool((scores.argmax(dim=1) == index).all())
        return index if agrees and scores[:, index].mean() >= ROW["early_confidence"] else None

    def _groups(self, n: int) -> list[int]:
        return list(self.augment.groups(n).values())

    def _average(self, logits: Tensor) -> Tensor:
        return weighted_log_probabilities(logits, 0, self._groups(len(logits)))

    def errors(self, part: Dataset) -> dict[str, float]:
        """Return the error rate of every candidate."""
        wrong: dict[str, list[bool]] = defaultdict(list)
        for sample in part:
            for name, index in self.predict(sample.image, sample_rng(0, sample.id)):
                wrong[name].append(index != sample.target)
        return {name: float(np.mean(values)) for name, values in wrong.items()}


def collect(weights: Path | None, count: int, folder: Path) -> Iterator[tuple[bool, dict[str, float]]]:
    """Yield, for each part, whether it is clean and its errors; missing files of `folder` are computed."""
    study = Study(load("resnet26", weights))
    for part in parts(count, CLEAN_RATIO):
        file = folder / f"{part.corruption or 'clean'}-{part.severity}.npz"
        if not file.exists():
            errors = study.errors(part)
            with atomic_file(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, names=np.array(list(errors)), wrong=np.array(list(errors.values())))
            click.echo(f"{file}: {len(part)} images", err=True)
        with np.load(file) as stored:
            yield not part.corruption, dict(zip(stored["names"], stored["wrong"], strict=True))


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--authors", type=click.Path(exists=True, path_type=Path), help="The authors' ResNet-26.")
@click.option("--limit", default=100, show_default=True, help="Images of each corruption at each level.")
def main(out: Path, authors: Path | None, limit: int) -> None:
    weights = {"shipped": None, **({"authors": authors} if authors else {})}
    found = [part for name, path in weights.items() for part in collect(path, limit, out / name)]
    click.echo("| | corrupted % | clean % |\n|---|---|---|")
    for name in found[0][1]:
        corrupted, clean = (
            100 * float(np.mean([errors[name] for is_clean, errors in found if is_clean == kind]))
            for kind in (False, True)
        )
        click.echo(f"| {name} | {corrupted:.2f} | {clean:.2f} |")


if __name__ == "__main__":
    main()
