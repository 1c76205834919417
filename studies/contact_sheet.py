"""Draw one image under all corruptions at all levels: python -m studies.contact_sheet --help."""

from pathlib import Path

import click
from PIL import Image, ImageDraw, ImageFont

from memo_tta.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from memo_tta.data.sample_images import load_sample
from memo_tta.files import atomic_file
from memo_tta.seeding import sample_rng

TILE, GAP, NAME, HEAD = 64, 4, 130, 24  # pixels
ROWS = 10  # corruptions per column of the sheet
POSITION = 4  # of the image in the bundled sample


def contact_sheet(position: int = POSITION) -> Image.Image:
    """Draw the bundled image at this position, one row per corruption."""
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


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("position", default=POSITION)
def main(out: Path, position: int) -> None:
    with atomic_file(out) as part:
        contact_sheet(position).save(part, "PNG", optimize=True)


if __name__ == "__main__":
    main()
