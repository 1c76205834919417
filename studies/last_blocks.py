"""The error of MEMO when only the last blocks are adapted: python -m studies.last_blocks --help.

One backward pass gives the gradients of all blocks, so that every choice of blocks is tried at the cost of a
forward pass. OUT.csv gets a row for each part of the data, number of views and choice; parts that it has
already are left out. DATA is cut into the validation corruptions at two levels.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import torch
from torch import Tensor

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import VALIDATION
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.evaluation.class_matching import match_classes
from memo_tta.files import atomic_file
from memo_tta.methods import METHODS
from memo_tta.methods.episode import episode, run_exclusively
from memo_tta.methods.memo import MemoOptions
from memo_tta.methods.parameters import blocks, choose_parameters
from memo_tta.methods.view_source import Augmenter
from memo_tta.models.batch_norm import mixed_statistics
from memo_tta.models.classifier import Classifier, Point
from memo_tta.models.zoo import load
from memo_tta.objectives import marginal_entropy
from memo_tta.seeding import sample_rng
from memo_tta.workers.malloc import keep_freed_memory

HEADS = ("model", "part", "views", "blocks", "images", "wrong")
SOURCE = "source"  # in the column `blocks`
LEVELS = (3, 5)


class LastBlocks:
    """One classifier, and the choices of its last blocks."""

    def __init__(self, classifier: Classifier, counts: Sequence[int]):
        self.classifier, self.options = classifier, memo_options(classifier)
        module = classifier.module
        self.parameters = choose_parameters(module, "all")
        self.augmenter = Augmenter(classifier, self.options.augment)
        available = len(blocks(module))
        self.choices = {str(k): choose_parameters(module, f"last:{k}") for k in counts if k < available}
        self.choices["all"] = self.parameters

    def predictions(self, point: Point, views: Tensor) -> Iterator[tuple[str, int]]:
        """Yield each choice and the class that it predicts."""
        module, options, x = self.classifier.module, self.options, point.x[None]
        with episode(module, self.parameters):
            with mixed_statistics(module, options.prior_strength):
                loss = marginal_entropy(self.classifier(views))
                gradients = torch.autograd.grad(loss, self.parameters)
            steps = {id(p): gradient for p, gradient in zip(self.parameters, gradients, strict=True)}
            for name, chosen in self.choices.items():
                values = [p.detach().clone() for p in chosen]
                rule = options.update_rule()
                rule.step(chosen, [steps[id(p)] for p in chosen])
                with torch.no_grad(), mixed_statistics(module, options.prior_strength):
                    yield name, int(self.classifier(x)[0].argmax())
                for parameter, value in zip(chosen, values, strict=True):
                    parameter.data.copy_(value)

    @torch.no_grad()
    def source(self, point: Point) -> int:
        """Return the class that the source predicts."""
        with episode(self.classifier.module):
            return int(self.classifier(point.x[None])[0].argmax())


def memo_options(classifier: Classifier) -> MemoOptions:
    """Return MEMO's defaults for the classifier."""
    options = METHODS["memo"].resolve(classifier.settings, {}, classifier.size)
    assert isinstance(options, MemoOptions)
    return options


def count_wrong(
    last: LastBlocks, data: Dataset, numbers_of_views: Sequence[int]
) -> dict[tuple[str, str], int]:
    """Return how many predictions are wrong, by number of views and choice."""
    wrong: dict[tuple[str, str], int] = {}

    def add(views: str, choice: str, is_wrong: bool) -> None:
        wrong[views, choice] = wrong.get((views, choice), 0) + is_wrong

    for sample in data:
        point = last.classifier.point(sample.image)
        add(
            "",
            SOURCE,
            run_exclusively(last.classifier.module, lambda p=point: last.source(p)) != sample.target,
        )
        for n in numbers_of_views:
            views = last.augmenter(point, n, sample_rng(0, sample.id))
            found = run_exclusively(
                last.classifier.module, lambda p=point, v=views: list(last.predictions(p, v))
            )
            for choice, index in found:
                add(str(n), choice, index != sample.target)
    return wrong


def read_rows(path: Path) -> list[list[str]]:
    """Return the rows of the file, without its heads."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


def write_rows(path: Path, rows: list[list[str]]) -> None:
    """Write the file, whole or not at all."""
    with atomic_file(path) as part, part.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([HEADS, *sorted(rows)])


@click.command(help=__doc__)
@click.argument("model")
@click.argument("data")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(exists=True, path_type=Path), help="Weights of the model.")
@click.option("--blocks", "counts", default="1,2,3,4,6,8", show_default=True, help="Numbers of last blocks.")
@click.option("--views", default="8,16", show_default=True, help="Numbers of views.")
@click.option("--images", default=40, show_default=True, help="Images of each part.")
def main(
    model: str, data: str, out: Path, weights: Path | None, counts: str, views: str, images: int
) -> None:
    keep_freed_memory()
    whole = load(model, weights)
    rows = read_rows(out)
    done = {tuple(row[:2]) for row in rows}
    for corruption in VALIDATION:
        for level in LEVELS:
            name = f"{corruption}-{level}"
            if (model, name) in done:
                continue
            (part,) = load_parts(data, [corruption], [level])
            classifier, chosen = match_classes(whole, balanced(part, images))
            last = LastBlocks(classifier, [int(count) for count in counts.split(",")])
            found = count_wrong(last, chosen, [int(n) for n in views.split(",")])
            rows += [[model, name, n, choice, str(len(chosen)), str(w)] for (n, choice), w in found.items()]
            write_rows(out, rows)
            click.echo(f"{model} {name}: " + ", ".join(f"{n} {c}: {w}" for (n, c), w in found.items()))


if __name__ == "__main__":
    main()
