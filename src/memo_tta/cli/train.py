"""`memo train`: train ResNet-26 on CIFAR-10, plain or with the rotation head."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memo_tta.cli.progress import progress

if TYPE_CHECKING:
    from memo_tta.training.loop import TrainingProgress


@click.command(epilog="Example: memo train --out runs/plain")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for the weights and the training state.",
)
@click.option("--joint", is_flag=True, help="Also train the rotation head of test-time training (TTT).")
@click.option("--epochs", default=30, show_default=True, help="Passes over the training images.")
@click.option("--batch-size", default=128, show_default=True, help="Images per step.")
@click.option("--lr", default=0.1, show_default=True, help="Peak learning rate of the one-cycle schedule.")
@click.option("--weight-decay", default=5e-4, show_default=True, help="Weight decay of SGD.")
@click.option("--init", type=click.Path(), help="Start from the weights of a plain ResNet-26 in this file.")
@click.option("--seed", default=0, show_default=True, help="Seed of weights, order and augmentation.")
def train(out: Path, epochs: int, **options: Any) -> None:
    """Train the paper's ResNet-26 on CIFAR-10, then measure its error once on the test images.

    The training state is saved after every epoch: run the same command again to resume it. A resumed run
    ends with exactly the same weights.
    """
    import numpy as np

    from memo_tta.data.catalog import load_dataset
    from memo_tta.training.loop import Recipe
    from memo_tta.training.loop import train as run
    from memo_tta.training.result import finish

    recipe = Recipe(epochs=epochs, **options)
    images = load_dataset("cifar10-train")
    with progress("steps") as update:

        def report(now: "TrainingProgress") -> None:
            note = f"epoch {now.epoch + 1}/{epochs} · loss {now.loss:.3f} · accuracy {now.accuracy:.1%}"
            update(now.step, now.steps, f"{note} · {now.images_per_second:.0f} images/s")

        model = run(np.asarray(images.images), images.targets, out, recipe, report)
    facts = finish(model, load_dataset("cifar10"), out, asdict(recipe))
    click.echo(json.dumps(facts, indent=2))
