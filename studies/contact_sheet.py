"""A picture of all corruptions at all levels: python -m studies.contact_sheet OUT.png [POSITION]."""

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from memo_tta.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from memo_tta.data.sample_images import load_sample
from memo_tta.files import atomic_file
from memo_tta.seeding import sample_rng

TILE, GAP, NAME, HEAD = 64, 4, 130, 24
ROWS = 10  # corruptions below each other; the rest goes beside them
POSITION = 4  # of the image among the shipped ones


def contact_sheet(position: int = POSITION) -> Image.Image:
    image = load_sample()[position].image
    font = ImageFont.load_default(13)
    block = NAME + (1 + len(SEVERITIES)) * (TILE + GAP)
    sheet = Image.new("RGB", (2 * block, HEAD + ROWS * (TILE + GAP)), "white")
    draw = ImageDraw.Draw(sheet)
    for index, name in enumerate(CORRUPTIONS):
        left, top = index // ROWS * block, HEAD + index % ROWS * (TILE + GAP)
        draw.text((left + 6, top + TILE // 2 - 8), name, "black", font)
        for column, level in enumerate((0, *SEVERITIES)):
            x = left + NAME + column * (TILE + GAP)
            if index % ROWS == 0:
                draw.text((x + 4, 4), f"level {level}" if level else "clean", "black", font)
            rng = sample_rng(0, f"{name} {level} {position}")
            tile = corrupt(image, name, level, rng) if level else image
            sheet.paste(Image.fromarray(tile).resize((TILE, TILE), Image.Resampling.NEAREST), (x, top))
    return sheet


if __name__ == "__main__":
    with atomic_file(Path(sys.argv[1])) as part:
        contact_sheet(*map(int, sys.argv[2:])).save(part, "PNG", optimize=True)
