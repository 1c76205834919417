"""Keep the logits of many forward passes, so that rules can be tried without the networks:
python -m studies.picture_passes --help.

OUT/MODEL/PART/VIEWS-N.npy holds the logits of some views of every picture, float16 (pictures, views,
classes), with batch-norm statistics mixed with prior strength N (off: not mixed), shift-VIEWS-N.npy the shift
of each view, and targets.npy the classes. Parts are the clean pictures and the validation corruptions at
some levels. With --side S, the network sees each view resized to S pixels, and files are
VIEWS-N-S.npy. A file that is there is not computed again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import VALIDATION
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.evaluation.class_matching import match_classes
from memo_tta.files import atomic_file
from memo_tta.models.batch_norm import mixed_statistics, statistics_layers
from memo_tta.models.classifier import Classifier, Point
from memo_tta.models.shift import measuring_shift
from memo_tta.models.zoo import load
from memo_tta.seeding import sample_rng
from memo_tta.views.augmix import AugMix
from memo_tta.views.augmix_plan import CropPlan, plan_augmix, plan_even_crops
from memo_tta.views.crop_flip import CropFlip
from memo_tta.views.execution import cpu_execution
from memo_tta.views.restoration import RESTORATIONS
from memo_tta.views.restored_views import to_float
from memo_tta.workers.malloc import keep_freed_memory

CORRUPTED = 100  # pictures of a part
OFF = "off"
RANDOM_VIEWS = 4

Views = Callable[[Point, np.random.Generator], Tensor]


def parts(pictures: Path, clean_pictures: int, levels: Sequence[int]) -> Iterator[tuple[str, Dataset]]:
    """Yield the name and data of each part."""
    (clean,) = load_parts(str(pictures))
    yield "clean", balanced(clean, clean_pictures)
    for level in levels:
        for corruption in VALIDATION:
            (part,) = load_parts(str(pictures), [corruption], [level])
            yield f"{corruption}-{level}", balanced(part, CORRUPTED)


def version(restoration: str) -> Views:
    """Return the views that are a version of the picture, and its mirror image."""

    def both(point: Point, _rng: np.random.Generator) -> Tensor:
        x = RESTORATIONS[restoration](to_float(point.fitted)).clamp(0, 1)
        return torch.stack([x, x.flip(2)])

    return both


def half_restored(point: Point, rng: np.random.Generator) -> Tensor:
    """Return the mean of the picture and its restoration, and its mirror image."""
    return (version("plain")(point, rng) + version("restored")(point, rng)) / 2


def translated(point: Point, rng: np.random.Generator) -> Tensor:
    """Return views translated by at most a sixteenth of the side, with mirrored borders."""
    size = point.fitted.shape[0]
    margin = size // 16
    padded = F.pad(to_float(point.fitted)[None], (margin,) * 4, mode="reflect")[0]
    crops = plan_even_crops(size, margin, RANDOM_VIEWS, rng)
    views = [padded[:, top : top + size, left : left + size] for top, left in crops.box[:, :2].tolist()]
    return torch.stack([view.flip(2) if flip else view for view, flip in zip(views, crops.flip, strict=True)])


def zoomed(point: Point, rng: np.random.Generator) -> Tensor:
    """Return crops of 80 to 100 % of the picture, resized."""
    return CropFlip(point.fitted.shape[0], "mild")(point.fitted, RANDOM_VIEWS, rng)


def augmix_whole(point: Point, rng: np.random.Generator) -> Tensor:
    """Return AugMix views of the whole picture, every other one mirrored."""
    size = point.fitted.shape[0]
    flip = np.arange(RANDOM_VIEWS) % 2 == 1
    box = np.tile([0, 0, size, size], (RANDOM_VIEWS, 1))
    plan = plan_augmix(CropPlan(box, flip), size, rng)
    crops = cpu_execution().padded_crops(point.fitted, plan.crops, size, 0)
    return cpu_execution().mix(plan, crops, (0.0,) * 3, (1.0,) * 3)


def augmix_mild(point: Point, rng: np.random.Generator) -> Tensor:
    """Return AugMix views of crops of 80 to 100 % of the picture."""
    return AugMix(point.fitted.shape[0], "mild")(point.fitted, RANDOM_VIEWS, rng)


def augmix_paper(point: Point, rng: np.random.Generator) -> Tensor:
    """Return AugMix views of the paper's crops, of 8 to 100 % of the picture."""
    return AugMix(point.fitted.shape[0])(point.whole, RANDOM_VIEWS, rng)


VIEWS: Mapping[str, Views] = {
    "plain": version("plain"),
    "restored": version("restored"),
    "half": half_restored,
    "translated": translated,
    "zoomed": zoomed,
    "augmix_whole": augmix_whole,
    "augmix_mild": augmix_mild,
    "augmix_paper": augmix_paper,
}


class Passes:
    """Forward passes of one network over views of a picture, each with the statistics of its own."""

    def __init__(self, classifier: Classifier, side: int | None = None):
        self._classifier, self._side = classifier, side
        self._layers = statistics_layers(classifier.module)

    @torch.no_grad()
    def __call__(self, point: Point, views: str, prior: str, seed: str = "") -> tuple[Tensor, Tensor]:
        """Return the logits (views, classes) of the views and their shifts (views,)."""
        x = VIEWS[views](point, sample_rng(0, f"{views} {seed}"))
        if self._side is not None:
            x = F.interpolate(x, (self._side, self._side), mode="bilinear", antialias=True)
        module, prior_strength = self._classifier.module, None if prior == OFF else float(prior)
        logits: list[Tensor] = []
        shifts: list[Tensor] = []
        with measuring_shift(self._layers) as meter, mixed_statistics(module, prior_strength):
            for view in torch.split(self._classifier.normalise(x), 1):
                logits.append(self._classifier(view))
                shift = meter.shift()
                shifts.append(torch.full((1,), torch.nan) if shift is None else shift)
        return torch.cat(logits), torch.cat(shifts)


def save(path: Path, array: np.ndarray) -> None:
    """Write an array that appears complete or not at all."""
    with atomic_file(path) as part, part.open("wb") as file:
        np.save(file, array)


def collect(
    model: str,
    named_parts: Iterable[tuple[str, Dataset]],
    out: Path,
    views: Sequence[str],
    priors: Sequence[str],
    side: int | None = None,
) -> None:
    """Compute the files that are missing, part by part."""
    whole = load(model)
    whole.module.eval()
    end = "" if side is None else f"-{side}"
    for name, data in named_parts:
        classifier, part = match_classes(whole, data)
        passes, folder = Passes(classifier, side), out / model / name
        save(folder / "targets.npy", part.targets)
        for kind, prior in product(views, priors):
            file = f"{kind}-{prior}{end}.npy"
            if (folder / file).exists():
                continue
            rows = [passes(classifier.point(sample.image), kind, prior, str(sample.id)) for sample in part]
            logits, shifts = (torch.stack(column) for column in zip(*rows, strict=True))
            save(folder / f"shift-{file}", shifts.numpy())
            save(folder / file, logits.half().numpy())
            error = np.mean(logits[:, 0].argmax(dim=1).numpy() != part.targets)
            click.echo(f"{model} {name} {kind}-{prior}{end}: {error:.1%} error of the first view")


@click.command(help=__doc__)
@click.argument("model")
@click.argument("pictures", type=click.Path(exists=True, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--views", default="plain,restored", show_default=True, help=f"Some of {', '.join(VIEWS)}.")
@click.option("--priors", default="off,64,16", show_default=True, help="Prior strengths N, and off.")
@click.option(
    "--side", type=click.IntRange(min=32), help="Side in pixels of the input, by default as trained."
)
@click.option("--clean", default=500, show_default=True, help="Number of clean pictures.")
@click.option("--levels", default="1,3,5", show_default=True, help="Levels of the corruptions.")
@click.option("--threads", default=1, show_default=True, help="Threads of torch.")
def main(
    model: str,
    pictures: Path,
    out: Path,
    views: str,
    priors: str,
    side: int | None,
    clean: int,
    levels: str,
    threads: int,
) -> None:
    keep_freed_memory()
    torch.set_num_threads(threads)
    named_parts = parts(pictures, clean, [int(level) for level in levels.split(",")])
    collect(model, named_parts, out, views.split(","), priors.split(","), side)


if __name__ == "__main__":
    main()
