"""Draw shifted images before and after restoration, with the model's predictions.

python -m studies.restored_picture --help

EXAMPLES are triples CORRUPTION LEVEL POSITION, where POSITION is that of a bundled image.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import memo_tta as mt
from memo_tta.data.corruptions import corrupt
from memo_tta.data.sample_images import load_sample
from memo_tta.files import atomic_file
from memo_tta.report.view_panel import CAPTION, GAP, INK, MARGIN, PAPER, RIGHT, TILE, WRONG, draw_tile
from memo_tta.seeding import sample_rng
from memo_tta.views.restoration import RESTORATIONS
from memo_tta.views.restored_views import Restore, to_float

HEAD = 24  # pixels
ROW_HEIGHT = TILE + CAPTION + GAP
COLUMNS = ("before the shift", "as it came", "restored", "answer")
COLUMN_WIDTH = TILE + 3 * GAP

Example = tuple[str, int, int]  # corruption, level, position
EXAMPLES: tuple[Example, ...] = (
    ("speckle_noise", 4, 21),
    ("gaussian_blur", 5, 19),
    ("spatter", 5, 7),
    ("speckle_noise", 3, 61),
)


def draw_examples(examples: Sequence[Example]) -> Image.Image:
    """Draw one row per example; correct predictions are green."""
    robust = mt.method("restore", mt.load("resnet26"), early_views=None)
    size = MARGIN + len(COLUMNS) * COLUMN_WIDTH + GAP, HEAD + len(examples) * ROW_HEIGHT
    panel = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(panel)
    for column, name in enumerate(COLUMNS):
        centre = MARGIN + GAP + column * COLUMN_WIDTH + TILE / 2
        draw.text((centre, HEAD / 2), name, INK, ImageFont.load_default(14), anchor="mm")
    for row, (corruption, level, position) in enumerate(examples):
        top, sample = HEAD + row * ROW_HEIGHT, load_sample()[position]
        shifted = corrupt(sample.image, corruption, level, sample_rng(0, f"{corruption} {position}"))
        about = f"{corruption.replace('_', chr(10))}\nlevel {level}"
        draw.text((GAP, top + TILE / 2), about, INK, ImageFont.load_default(14), anchor="lm")
        for column, (picture, probabilities) in enumerate(_columns(robust, sample.image, shifted)):
            corner = MARGIN + GAP + column * COLUMN_WIDTH, top
            label = (robust.classifier.labels or [])[probabilities.argmax()]
            score = f"{probabilities.max():.0%}"
            colour = RIGHT if probabilities.argmax() == sample.target else WRONG
            if picture is None:
                centre = (corner[0] + TILE / 2, corner[1] + TILE / 2)
                draw.text(centre, f"{label} {score}", colour, ImageFont.load_default(16), anchor="mm")
            else:
                draw_tile(panel, corner, picture, label, score, colour)
    return panel


def _columns(
    robust: mt.methods.Method[Any], before: np.ndarray, shifted: np.ndarray
) -> list[tuple[np.ndarray | None, np.ndarray]]:
    """Return a picture and its class probabilities for each column; the answer has no picture."""
    seen = robust.explain(shifted)
    plain = Restore(32).groups(len(seen.before)).get("plain", 0)
    restored = np.mean([view.probabilities.numpy() for view in seen.before[plain:]], axis=0)
    version = RESTORATIONS["restored"](to_float(shifted)).mul(255).round().byte().permute(1, 2, 0).numpy()
    return [
        (before, robust.predict(before).source.probabilities.numpy()),
        (shifted, seen.prediction.source.probabilities.numpy()),
        (version, restored),
        (None, seen.prediction.probabilities.numpy()),
    ]


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("examples", nargs=-1)
def main(out: Path, examples: Sequence[str]) -> None:
    if len(examples) % 3:
        raise click.UsageError("EXAMPLES: expected triples CORRUPTION LEVEL POSITION")
    triples = zip(examples[::3], examples[1::3], examples[2::3], strict=True)
    given = [(corruption, int(level), int(position)) for corruption, level, position in triples]
    with atomic_file(out) as part:
        draw_examples(given or EXAMPLES).save(part, "PNG", optimize=True)


if __name__ == "__main__":
    main()
