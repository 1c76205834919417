"""Measure what compiled views save of a MEMO prediction: python -m studies.view_executions --help.

Every way to make the views takes its turn in every round; medians are shown. Weights are random.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from statistics import median

import click
import numpy as np
import torch
from PIL import Image
from torch import Tensor

import memo_tta as mt
from memo_tta.bench.measurement import interleaved
from memo_tta.bench.published_loop import make_views_one_by_one
from memo_tta.data.sample_images import load_sample
from memo_tta.models.zoo import ZOO
from memo_tta.views import AugMix, execution_compiled, execution_portable
from memo_tta.views.execution import Execution

PHOTO = (500, 375)  # width and height


@dataclass(frozen=True)
class Setting:
    """A model, its number of views and its kind of crop."""

    model: str
    views: int
    crop: str


SETTINGS = (Setting("resnet26", 32, "padded"), Setting("efficientnet_lite0", 64, "resized"))


def build_memo(setting: Setting) -> mt.Memo:
    """Return MEMO with the paper's settings for a model with random weights."""
    entry = ZOO[setting.model]
    module = entry.build(10 if entry.classes == "cifar10" else 1000).eval()
    classifier = mt.Classifier(module, channels_last=True, settings=entry.settings, **entry.preprocessing)
    return mt.Memo(classifier, n_views=setting.views)


def build_image(setting: Setting) -> np.ndarray:
    """Return a bundled image; for large models, at the size and with the grain of a photograph."""
    image = load_sample()[0].image
    if setting.crop == "padded":
        return image
    large = np.asarray(Image.fromarray(image).resize(PHOTO, Image.Resampling.BICUBIC))
    return (large + np.random.default_rng(0).normal(0, 4, large.shape)).clip(0, 255).astype(np.uint8)


def views_by(execution: Execution, setting: Setting, size: int) -> Callable[[np.ndarray], Tensor]:
    """Return a function that plans and computes the views of an image."""
    augment, rng = AugMix(size, setting.crop), np.random.default_rng(0)

    def make_views(image: np.ndarray) -> Tensor:
        plan = augment.plan(image, setting.views, rng)
        if setting.crop == "padded":
            crops = execution.padded_crops(image, plan.crops, size, size // 8)
        else:
            crops = execution.resized_crops(image, plan.crops, size)
        return execution.mix(plan, crops, (0.5,) * 3, (0.5,) * 3)

    return make_views


def measure(setting: Setting, threads: int, rounds: int) -> str:
    """Return a row of the table: milliseconds, and each one's share of a prediction that uses it."""
    torch.set_num_threads(threads)
    robust, image, ids = build_memo(setting), build_image(setting), count()
    size = robust.classifier.size
    assert isinstance(size, int)
    compiled = views_by(execution_compiled, setting, size)
    portable = views_by(execution_portable, setting, size)
    augment, rng = AugMix(size, setting.crop), np.random.default_rng(0)
    seconds = interleaved(
        rounds,
        prediction=lambda: robust.predict(image, sample_id=next(ids)),
        compiled=lambda: compiled(image),
        portable=lambda: portable(image),
        pillow=lambda: make_views_one_by_one(
            augment, image, setting.views, rng, setting.crop, (0.5,) * 3, (0.5,) * 3
        ),
    )
    times = {name: 1000 * median(each) for name, each in seconds.items()}
    rest = times["prediction"] - times["compiled"]
    kinds = ("compiled", "portable", "pillow")
    cells = [f"{times[kind]:.3g} ms, {times[kind] / (rest + times[kind]):.1%}" for kind in kinds]
    row = [f"{setting.model}, {size} px, B = {setting.views}", str(threads), f"{rest:.0f} ms", *cells]
    return f"| {' | '.join(row)} |"


@click.command(help=__doc__)
@click.argument("threads", type=click.IntRange(1))
@click.argument("rounds", type=click.IntRange(1), default=7)
def main(threads: int, rounds: int) -> None:
    click.echo("| model | threads | prediction without views | compiled | portable | Pillow loop |")
    click.echo("|---|---|---|---|---|---|")
    for setting in SETTINGS:
        click.echo(measure(setting, threads, rounds))


if __name__ == "__main__":
    main()
