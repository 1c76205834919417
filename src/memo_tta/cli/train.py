"""`memo train`: train one of the bundled networks on CIFAR-10."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memo_tta.progress import progress

if TYPE_CHECKING:
    from memo_tta.training.loop import TrainingProgress


@click.command(epilog="Example: memo train --out runs/plain")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for the weights and the training state.",
)
@click.option("--model", default="resnet26", show_default=True, help="resnet26, resnet20-bn or cct2.")
@click.option("--joint", is_flag=True, help="Also train the rotation head of TTT (resnet26 only).")
@click.option("--epochs", type=click.IntRange(1), help="Passes over the training images.")
@click.option("--batch-size", type=click.IntRange(1), help="Images per step.")
@click.option("--lr", type=click.FloatRange(0, min_open=True), help="Peak rate of the one-cycle schedule.")
@click.option("--weight-decay", type=click.FloatRange(0), help="Weight decay of the optimizer.")
@click.option("--init", type=click.Path(), help="Start from these weights of the same, plain network.")
@click.option("--seed", type=int, help="Seed of weights, order and augmentation.")
def train(out: Path, model: str, joint: bool, **options: Any) -> None:
    """Train a small network on CIFAR-10, then measure its error once on the test images.

    Options that are not given are those of the model's recipe. The training state is saved after every
    epoch: run the same command again to resume it. A resumed run ends with exactly the same weights.
    """
    import numpy as np

    from memo_tta.data.catalog import load_dataset
    from memo_tta.files import check_output_folder
    from memo_tta.training.loop import RECIPES
    from memo_tta.training.loop import train as run
    from memo_tta.training.result import finish

    given = {name: value for name, value in options.items() if value is not None}
    recipe = replace(RECIPES[f"{model}-joint" if joint else model], **given)
    check_output_folder(out)
    images = load_dataset("cifar10-train")
    with progress("steps") as update:

        def report(now: "TrainingProgress") -> None:
            note = (
                f"epoch {now.epoch + 1}/{recipe.epochs} · loss {now.loss:.3f} · accuracy {now.accuracy:.1%}"
            )
            update(now.step, now.steps, f"{note} · {now.images_per_second:.0f} images/s")

        network = run(np.asarray(images.images), images.targets, out, recipe, report)
    facts = finish(network, load_dataset("cifar10"), out, asdict(recipe))
    click.echo(json.dumps(facts, indent=2))
