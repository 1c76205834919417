"""Keep the logits of many forward passes, so that rules can be tried without the networks:
python -m studies.picture_passes --help.

OUT/MODEL/PART/VERSION-N.npy holds the logits of the version and of its mirror image, float16 (pictures, 2,
classes), with batch-norm statistics mixed with prior strength N (off: not mixed); shift.npy the shift of each
picture, and targets.npy its class. Parts are the clean pictures and the validation corruptions at levels 1, 3
and 5. With --side S, the network sees each version resized to S pixels, and files are VERSION-N-S.npy. A file
that is there is not computed again.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F

from memo_tta.data.catalog import load_parts
from memo_tta.data.corruptions.severity import VALIDATION
from memo_tta.data.dataset import Dataset, balanced
from memo_tta.evaluation.class_matching import match_classes
from memo_tta.files import atomic_file
from memo_tta.models.batch_norm import mixed_statistics, statistics_layers
from memo_tta.models.classifier import Classifier
from memo_tta.models.shift import measuring_shift
from memo_tta.models.zoo import load
from memo_tta.views.restoration import RESTORATIONS
from memo_tta.views.restored_views import to_float

CLEAN, CORRUPTED = 500, 100  # pictures of a part
LEVELS = (1, 3, 5)
OFF = "off"


def parts(pictures: Path) -> Iterator[tuple[str, Dataset]]:
    """Yield the name and data of each part."""
    (clean,) = load_parts(str(pictures))
    yield "clean", balanced(clean, CLEAN)
    for level in LEVELS:
        for corruption in VALIDATION:
            (part,) = load_parts(str(pictures), [corruption], [level])
            yield f"{corruption}-{level}", balanced(part, CORRUPTED)


class Passes:
    """Forward passes of one network over versions of a picture."""

    def __init__(self, classifier: Classifier, side: int | None = None):
        self._classifier, self._side = classifier, side
        self._layers = statistics_layers(classifier.module)

    @torch.no_grad()
    def logits(self, image: np.ndarray, version: str, prior: str) -> tuple[np.ndarray, float]:
        """Return the logits (2, classes) of a version and its mirror image, and the shift of the version."""
        point = self._classifier.point(image)
        x = RESTORATIONS[version](to_float(point.fitted)).clamp(0, 1)
        if self._side is not None:
            x = F.interpolate(x[None], (self._side, self._side), mode="bilinear", antialias=True)[0]
        views = self._classifier.normalise(torch.stack([x, x.flip(2)]))
        prior_strength = None if prior == OFF else float(prior)
        with (
            mixed_statistics(self._classifier.module, prior_strength),
            measuring_shift(self._layers) as meter,
        ):
            logits = self._classifier(views)
            shift = meter.shift()
        return logits.half().numpy(), float("nan") if shift is None else float(shift[0])


def save(path: Path, array: np.ndarray) -> None:
    """Write an array that appears complete or not at all."""
    with atomic_file(path) as part, part.open("wb") as file:
        np.save(file, array)


def collect(
    model: str,
    pictures: Path,
    out: Path,
    versions: Sequence[str],
    priors: Sequence[str],
    side: int | None = None,
) -> None:
    """Compute the files that are missing, part by part."""
    whole = load(model)
    whole.module.eval()
    for name, data in parts(pictures):
        classifier, part = match_classes(whole, data)
        passes, folder = Passes(classifier, side), out / model / name
        save(folder / "targets.npy", part.targets)
        for version in versions:
            for prior in priors:
                path = folder / ("-".join([version, prior, *([] if side is None else [str(side)])]) + ".npy")
                if path.exists():
                    continue
                found = [passes.logits(sample.image, version, prior) for sample in part]
                save(path, np.stack([logits for logits, _ in found]))
                if (version, prior, side) == ("plain", OFF, None):
                    save(folder / "shift.npy", np.array([shift for _, shift in found]))
                error = np.mean([logits[0].argmax() for logits, _ in found] != part.targets)
                click.echo(f"{model} {name} {path.stem}: {error:.1%} error")


@click.command(help=__doc__)
@click.argument("model")
@click.argument("pictures", type=click.Path(exists=True, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--versions", default="plain,restored", show_default=True, help="Names of restorations.")
@click.option("--priors", default="off,64,16", show_default=True, help="Prior strengths N, and off.")
@click.option(
    "--side", type=click.IntRange(min=32), help="Side in pixels of the input, by default as trained."
)
@click.option("--threads", default=1, show_default=True, help="Threads of torch.")
def main(
    model: str, pictures: Path, out: Path, versions: str, priors: str, side: int | None, threads: int
) -> None:
    torch.set_num_threads(threads)
    collect(model, pictures, out, versions.split(","), priors.split(","), side)


if __name__ == "__main__":
    main()
