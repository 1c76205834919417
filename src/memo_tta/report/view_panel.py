"""Pictures like the paper's figure 2: the views, with the model's answers before and after adapting."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from memo_tta.methods import Prediction

TILE, GAP, CAPTION, MARGIN = 96, 10, 34, 110
INK, PAPER, RIGHT, WRONG, GREY = (15, 23, 42), (255, 255, 255), (21, 128, 61), (185, 28, 28), (100, 116, 139)


def view_panel(
    pictures: Sequence[np.ndarray],
    before: Sequence[Prediction],
    after: Sequence[Prediction],
    truth: str,
) -> Image.Image:
    """Two rows of the same pictures, uint8 (height, width, 3); green captions are right, red ones wrong."""
    width = MARGIN + len(pictures) * (TILE + GAP) + GAP
    height = 2 * (TILE + CAPTION + GAP) + GAP
    panel = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(panel)
    for row, (title, answers) in enumerate((("before", before), ("after", after))):
        top = GAP + row * (TILE + CAPTION + GAP)
        draw.text((GAP, top + TILE / 2), title, INK, ImageFont.load_default(16), anchor="lm")
        for column, (picture, answer) in enumerate(zip(pictures, answers, strict=True)):
            left = MARGIN + GAP + column * (TILE + GAP)
            panel.paste(Image.fromarray(picture).resize((TILE, TILE), Image.Resampling.NEAREST), (left, top))
            colour = RIGHT if answer.label == truth else WRONG
            draw.rectangle((left - 2, top - 2, left + TILE + 1, top + TILE + 1), outline=colour, width=2)
            centre = left + TILE / 2
            draw.text(
                (centre, top + TILE + 12), answer.label, colour, ImageFont.load_default(14), anchor="mm"
            )
            score = f"{answer.score:.0%}"
            draw.text((centre, top + TILE + 26), score, GREY, ImageFont.load_default(12), anchor="mm")
    return panel
