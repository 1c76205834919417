"""Draw one image under all corruptions at all levels: python -m studies.contact_sheet --help."""

from collections.abc import Sequence
from pathlib import Path

import click
from PIL import Image, ImageDraw, ImageFont

from memo_tta.data.corruptions import CORRUPTIONS, OWN_VALIDATION, SEVERITIES, corrupt
from memo_tta.data.sample_images import load_sample
from memo_tta.files import atomic_file
from memo_tta.seeding import sample_rng

TILE, GAP, NAME, HEAD = 64, 4, 130, 24  # pixels
ROWS = 10  # corruptions per column of the sheet
POSITION = 4  # of the image in the bundled sample


def contact_sheet(position: int = POSITION, names: Sequence[str] = CORRUPTIONS) -> Image.Image:
    """Draw the bundled image at this position, one row per corruption."""
    rows = min(ROWS, len(names))
    image = load_sample()[position].image
    font = ImageFont.load_default(13)
    block = NAME + (1 + len(SEVERITIES)) * (TILE + GAP)
    sheet = Image.new("RGB", (-(-len(names) // ROWS) * block, HEAD + rows * (TILE + GAP)), "white")
    draw = ImageDraw.Draw(sheet)
    for index, name in enumerate(names):
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
@click.option("--own", is_flag=True, help="Draw the validation shifts of our own instead.")
def main(out: Path, position: int, own: bool) -> None:
    with atomic_file(out) as part:
        contact_sheet(position, OWN_VALIDATION if own else CORRUPTIONS).save(part, "PNG", optimize=True)


if __name__ == "__main__":
    main()
