"""Write the reference pages from the code into docs/reference: python -m studies.reference --help."""

from pathlib import Path

import click

from memo_tta.files import atomic_file
from studies.reference import commands, methods, python

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {"python.md": python.page, "methods.md": methods.page, "commands.md": commands.page}


@click.command(help=__doc__)
def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        with atomic_file(FOLDER / name) as part:
            part.write_text(page(), "utf-8")
