"""Pictures like the paper's figure 2: an image and its views, with predictions before and after adapting."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from memo_tta.data.dataset import Dataset
from memo_tta.methods import Method, Prediction, Status

TILE, GAP, CAPTION, MARGIN = 96, 10, 34, 110  # pixels
INK, PAPER, RIGHT, WRONG, GREY = (15, 23, 42), (255, 255, 255), (21, 128, 61), (185, 28, 28), (100, 116, 139)
SHOWN_VIEWS = 7


@dataclass(frozen=True)
class Figure:
    """A picture and its caption."""

    picture: Image.Image
    caption: str


def point_panel(robust: Method[Any], data: Dataset, position: int, target: str) -> Image.Image:
    """Draw a point and some of its views, with the predictions before and after adaptation.

    Where the views were only averaged, their predictions stay the same, so they are shown once.
    """
    sample, classifier = data[position], robust.classifier
    seen = robust.explain(sample.image, sample_id=sample.id)
    is_averaged = seen.prediction.status == Status.AVERAGED
    after = [] if is_averaged else seen.after[:SHOWN_VIEWS]
    return view_panel(
        [classifier.point(sample.image).fitted, *classifier.pictures(seen.views[:SHOWN_VIEWS])],
        [seen.prediction.source, *seen.before[:SHOWN_VIEWS]],
        [seen.prediction, *after],
        target,
        titles=("each", "average") if is_averaged else ("before", "after"),
    )


def view_panel(
    pictures: Sequence[np.ndarray],
    before: Sequence[Prediction],
    after: Sequence[Prediction],
    target: str,
    titles: tuple[str, str] = ("before", "after"),
) -> Image.Image:
    """Draw the pictures, uint8 (height, width, 3), in two rows; correct predictions are green, others red.

    A row has as many pictures as predictions, the first ones.
    """
    width = MARGIN + len(pictures) * (TILE + GAP) + GAP
    height = 2 * (TILE + CAPTION + GAP) + GAP
    panel = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(panel)
    for row, (title, predictions) in enumerate(zip(titles, (before, after), strict=True)):
        top = GAP + row * (TILE + CAPTION + GAP)
        draw.text((GAP, top + TILE / 2), title, INK, ImageFont.load_default(16), anchor="lm")
        for column, (picture, prediction) in enumerate(zip(pictures, predictions, strict=False)):
            corner = MARGIN + GAP + column * (TILE + GAP), top
            colour = RIGHT if prediction.label == target else WRONG
            draw_tile(panel, corner, picture, prediction.label, f"{prediction.score:.0%}", colour)
    return panel


def draw_tile(
    panel: Image.Image,
    corner: tuple[int, int],
    picture: np.ndarray,
    label: str,
    score: str,
    colour: tuple[int, int, int],
) -> None:
    """Draw a framed picture with its predicted label and score below it."""
    draw = ImageDraw.Draw(panel)
    left, top = corner
    panel.paste(Image.fromarray(picture).resize((TILE, TILE), Image.Resampling.NEAREST), corner)
    draw.rectangle((left - 2, top - 2, left + TILE + 1, top + TILE + 1), outline=colour, width=2)
    centre = left + TILE / 2
    draw.text((centre, top + TILE + 12), label, colour, ImageFont.load_default(14), anchor="mm")
    draw.text((centre, top + TILE + 26), score, GREY, ImageFont.load_default(12), anchor="mm")
