"""Shifted images, their restored versions and what the model says of each:
python -m benchmarks.versions_picture OUT.png [CORRUPTION LEVEL PLACE]...
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import memo_tta as mt
from memo_tta.data.corruptions import corrupt
from memo_tta.data.sample_images import load_sample
from memo_tta.files import whole_file
from memo_tta.report.panel import CAPTION, GAP, GREY, INK, MARGIN, PAPER, RIGHT, TILE, WRONG
from memo_tta.seeding import sample_rng
from memo_tta.views.restore import CHOSEN, Restore

HEAD, BAR = 24, 8
ROW = TILE + CAPTION + BAR + 2 * GAP
EXAMPLES = (("speckle_noise", 4, 21), ("gaussian_blur", 5, 19), ("spatter", 4, 2))


def picture(examples: tuple[tuple[str, int, int], ...]) -> Image.Image:
    """A row per image of the shipped sample: the answer, then version by version."""
    robust = mt.Memo(mt.load("resnet26"), preset="best", early_views=None)
    panel = Image.new(
        "RGB", (MARGIN + (1 + len(CHOSEN)) * (TILE + GAP) + GAP, HEAD + len(examples) * ROW), PAPER
    )
    draw = ImageDraw.Draw(panel)
    for column, name in enumerate(("answer", *CHOSEN)):
        centre = MARGIN + GAP + column * (TILE + GAP) + TILE / 2
        draw.text((centre, HEAD / 2), name, INK, ImageFont.load_default(14), anchor="mm")
    for row, (corruption, level, place) in enumerate(examples):
        sample = load_sample()[place]
        shifted = corrupt(sample.image, corruption, level, sample_rng(0, f"{corruption} {place}"))
        _row(draw, panel, robust, shifted, sample.label, HEAD + row * ROW)
        about = f"{corruption.replace('_', chr(10))}\nlevel {level}"
        draw.text((GAP, HEAD + row * ROW + TILE / 2), about, INK, ImageFont.load_default(14), anchor="lm")
    return panel


def _row(
    draw: ImageDraw.ImageDraw, panel: Image.Image, robust: mt.Memo, image: np.ndarray, truth: int, top: int
) -> None:
    """Frames and captions are green where right; bars are weights."""
    labels = robust.classifier.labels or []
    seen = robust.explain(image)
    said = np.stack([answer.probabilities.numpy() for answer in seen.before])
    p = np.stack([group.mean(axis=0) for group in np.split(said, len(CHOSEN))])
    weight = np.exp(robust.options.temperature * (p * np.log(p + 1e-30)).sum(axis=1))
    weight /= weight.sum()
    answer = seen.prediction.probabilities.numpy()
    tiles = [(image, answer, None)]
    tiles += list(zip(Restore(32).versions(image), p, weight, strict=True))
    for column, (tile, scores, share) in enumerate(tiles):
        left = MARGIN + GAP + column * (TILE + GAP)
        colour = RIGHT if scores.argmax() == truth else WRONG
        panel.paste(Image.fromarray(tile).resize((TILE, TILE), Image.Resampling.NEAREST), (left, top))
        draw.rectangle((left - 2, top - 2, left + TILE + 1, top + TILE + 1), outline=colour, width=2)
        caption = f"{labels[scores.argmax()]} {scores.max():.0%}"
        draw.text(
            (left + TILE / 2, top + TILE + 14), caption, colour, ImageFont.load_default(13), anchor="mm"
        )
        if share is not None:
            bar = top + TILE + 28
            draw.rectangle((left, bar, left + TILE, bar + BAR), outline=GREY)
            draw.rectangle((left, bar, left + round(TILE * share), bar + BAR), fill=GREY)
        else:
            before = f"source: {seen.prediction.source.label}"
            draw.text(
                (left + TILE / 2, top + TILE + 30), before, GREY, ImageFont.load_default(12), anchor="mm"
            )


if __name__ == "__main__":
    out, *words = sys.argv[1:]
    given = tuple(
        (name, int(level), int(place)) for name, level, place in zip(*[iter(words)] * 3, strict=True)
    )
    with whole_file(Path(out)) as part:
        picture(given or EXAMPLES).save(part, "PNG", optimize=True)
