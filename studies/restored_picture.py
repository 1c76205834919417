"""Shifted images, what they become restored, and what the model says of each:
python -m studies.restored_picture OUT.png [CORRUPTION LEVEL PLACE]...
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import memo_tta as mt
from memo_tta.data.corruptions import corrupt
from memo_tta.data.sample_images import load_sample
from memo_tta.files import atomic_file
from memo_tta.report.view_panel import CAPTION, GAP, GREY, INK, MARGIN, PAPER, RIGHT, TILE, WRONG
from memo_tta.seeding import sample_rng
from memo_tta.views.restoration import RESTORATIONS
from memo_tta.views.restored_views import Restore, to_float

HEAD = 24
ROW = TILE + CAPTION + GAP
COLUMNS = ("before the shift", "as it came", "restored", "answer")
WIDE = TILE + 3 * GAP
EXAMPLES = (
    ("speckle_noise", 4, 21),
    ("gaussian_blur", 5, 19),
    ("spatter", 5, 7),
    ("speckle_noise", 3, 61),
)


def picture(examples: tuple[tuple[str, int, int], ...]) -> Image.Image:
    """A row per image of the shipped sample; green is right."""
    robust = mt.method("restore", mt.load("resnet26"), early_views=None)
    panel = Image.new("RGB", (MARGIN + len(COLUMNS) * WIDE + GAP, HEAD + len(examples) * ROW), PAPER)
    draw = ImageDraw.Draw(panel)
    for column, name in enumerate(COLUMNS):
        centre = MARGIN + GAP + column * WIDE + TILE / 2
        draw.text((centre, HEAD / 2), name, INK, ImageFont.load_default(14), anchor="mm")
    for row, (corruption, level, position) in enumerate(examples):
        top, sample = HEAD + row * ROW, load_sample()[position]
        shifted = corrupt(sample.image, corruption, level, sample_rng(0, f"{corruption} {position}"))
        about = f"{corruption.replace('_', chr(10))}\nlevel {level}"
        draw.text((GAP, top + TILE / 2), about, INK, ImageFont.load_default(14), anchor="lm")
        for column, (tile, scores) in enumerate(_tiles(robust, sample.image, shifted)):
            _tile(draw, panel, (MARGIN + GAP + column * WIDE, top), tile, scores, sample.target, robust)
    return panel


def _tiles(
    robust: mt.methods.Method[Any], before: np.ndarray, shifted: np.ndarray
) -> list[tuple[np.ndarray | None, np.ndarray]]:
    """A picture of each column, or none, and its probabilities."""
    seen = robust.explain(shifted)
    plain = Restore(32).groups(len(seen.before)).get("plain", 0)
    restored = np.mean([answer.probabilities.numpy() for answer in seen.before[plain:]], axis=0)
    version = RESTORATIONS["restored"](to_float(shifted)).mul(255).round().byte().permute(1, 2, 0).numpy()
    return [
        (before, robust.predict(before).source.probabilities.numpy()),
        (shifted, seen.prediction.source.probabilities.numpy()),
        (version, restored),
        (None, seen.prediction.probabilities.numpy()),
    ]


def _tile(
    draw: ImageDraw.ImageDraw,
    panel: Image.Image,
    corner: tuple[int, int],
    tile: np.ndarray | None,
    scores: np.ndarray,
    truth: int,
    robust: mt.methods.Method[Any],
) -> None:
    left, top = corner
    colour = RIGHT if scores.argmax() == truth else WRONG
    label, score = (robust.classifier.labels or [])[scores.argmax()], f"{scores.max():.0%}"
    if tile is None:
        centre = (left + TILE / 2, top + TILE / 2)
        draw.text(centre, f"{label} {score}", colour, ImageFont.load_default(16), anchor="mm")
        return
    panel.paste(Image.fromarray(tile).resize((TILE, TILE), Image.Resampling.NEAREST), corner)
    draw.rectangle((left - 2, top - 2, left + TILE + 1, top + TILE + 1), outline=colour, width=2)
    draw.text((left + TILE / 2, top + TILE + 12), label, colour, ImageFont.load_default(14), anchor="mm")
    draw.text((left + TILE / 2, top + TILE + 26), score, GREY, ImageFont.load_default(12), anchor="mm")


if __name__ == "__main__":
    out, *words = sys.argv[1:]
    given = tuple(
        (name, int(level), int(position)) for name, level, position in zip(*[iter(words)] * 3, strict=True)
    )
    with atomic_file(Path(out)) as part:
        picture(given or EXAMPLES).save(part, "PNG", optimize=True)
