"""Measure `restore` on validation shifts and clean images: python -m studies.restoration_gains --help.

The shifts are the published validation corruptions and those of our own, at levels 3 and 5. No test
corruption is looked at. `former` is the method before it knew grids, directions, torn edges and colours, and
before its gate saw a restored view. Results are kept in OUT, one file per model and part, and read again.
"""

from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor

import memo_tta as mt
from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions import OWN_VALIDATION, VALIDATION
from memo_tta.data.dataset import Dataset
from memo_tta.files import atomic_file
from memo_tta.methods import Method
from memo_tta.models.classifier import Classifier
from memo_tta.models.zoo import load
from memo_tta.report.markdown import table_row
from memo_tta.views.restored_views import Restore

LEVELS = (3, 5)
BATCH = 25
GATE_PASSES = 3  # the image, and two views of it
RESAMPLES = 2000


class FormerViews(Restore):
    """The views of the former method; its gate sees the image alone."""

    def __init__(self, size: int):
        super().__init__(size, {"plain": 1, "restored as a large image": 3})
        self._plain = Restore(size, {"plain": 1})

    def preview(self, image: np.ndarray, n: int, rng: np.random.Generator) -> Tensor:
        return self._plain(image, n, rng)


def methods(classifier: Classifier, with_tta: bool) -> dict[str, Method]:
    """Return the methods to compare, by name."""
    former = {"augment": FormerViews(32), "n_views": 16}
    found = {
        "source": mt.method("source", classifier),
        "former": mt.method("restore", classifier, **former),
        "restore": mt.method("restore", classifier),
    }
    return found | ({"tta": mt.method("tta", classifier)} if with_tta else {})


def is_wrong(compared: Mapping[str, Method], part: Dataset) -> dict[str, np.ndarray]:
    """Return for each method whether it errs on each image, and for `restore` the forward passes."""
    found: dict[str, list[float]] = {name: [] for name in [*compared, "passes"]}
    for start in range(0, len(part), BATCH):
        samples = [part[index] for index in range(start, min(start + BATCH, len(part)))]
        images, ids = [sample.image for sample in samples], [sample.id for sample in samples]
        for name, each in compared.items():
            predictions = each.predict(images, sample_id=ids)
            found[name] += [
                float(p.index != sample.target) for p, sample in zip(predictions, samples, strict=True)
            ]
            if name == "restore":
                views = each.options.n_views
                found["passes"] += [GATE_PASSES + views * (p.status != "gated") for p in predictions]
    return {name: np.array(values) for name, values in found.items()}


def difference(a: np.ndarray, b: np.ndarray) -> str:
    """Return the mean of a - b in points, with the 95 % interval over images drawn again."""
    paired = 100 * (a - b)
    draws = np.random.default_rng(0).integers(0, len(paired), (RESAMPLES, len(paired)))
    low, high = np.percentile(paired[draws].mean(axis=1), [2.5, 97.5])
    return f"{paired.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def row(name: str, found: Mapping[str, np.ndarray]) -> str:
    """Return one row of the table."""
    errors = [f"{100 * values.mean():.1f}" for key, values in found.items() if key != "passes"]
    change = difference(found["restore"], found["former"])
    return table_row([name, str(len(found["source"])), *errors, change, f"{found['passes'].mean():.1f}"])


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--model", default="resnet26", show_default=True)
@click.option("--weights", type=click.Path(exists=True, path_type=Path))
@click.option("--start", default=7000, show_default=True, help="Position of the first test image.")
@click.option("--limit", default=150, show_default=True, help="Images of each shift at each level.")
@click.option("--clean", default=2000, show_default=True, help="Clean images.")
@click.option("--tta", is_flag=True, help="Add test-time augmentation with 32 AugMix views.")
def main(out: Path, model: str, weights: Path | None, start: int, limit: int, clean: int, tta: bool) -> None:
    torch.set_num_threads(1)
    compared = methods(load(model, weights), tta)
    parts = [*load_parts("cifar10"), *load_parts("cifar10", (*OWN_VALIDATION, *VALIDATION), LEVELS)]
    results: dict[str, dict[str, np.ndarray]] = {}
    for part in parts:
        count = limit if part.corruption else clean
        name = f"{part.corruption} {part.severity}" if part.corruption else "clean"
        file = out / f"{model}-{name.replace(' ', '-')}-{start}-{count}.npz"
        if not file.exists():
            found = is_wrong(compared, part.take(range(start, start + count)))
            with atomic_file(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, allow_pickle=False, **found)
            click.echo(row(name, found), err=True)
        with np.load(file) as stored:
            results[name] = dict(stored)
    shifted = [found for name, found in results.items() if name != "clean"]
    # An image's copies are drawn together: they are not independent.
    mean = {key: np.mean([found[key] for found in shifted], axis=0) for key in results["clean"]}
    heads = ["error %", "n", *(key for key in mean if key != "passes"), "restore to former", "passes"]
    click.echo(f"{table_row(heads)}\n|{'---|' * len(heads)}")
    for name, found in [*results.items(), ("mean of the shifts", mean)]:
        click.echo(row(name, found))


if __name__ == "__main__":
    main()
