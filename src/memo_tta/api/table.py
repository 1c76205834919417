"""The table of results as text for a terminal, and as HTML for a notebook."""

import io
import sys
from shutil import get_terminal_size

from jinja2 import ChoiceLoader, PackageLoader
from rich.console import Console

from memo_tta.report.html import TEMPLATES
from memo_tta.report.html_tables import results_table
from memo_tta.report.run import Run
from memo_tta.report.terminal import print_runs

TEMPLATE = TEMPLATES.overlay(
    loader=ChoiceLoader([PackageLoader("memo_tta.api"), PackageLoader("memo_tta.report")])
).get_template("notebook.html")


class FormattedTable:
    """The table that `memo report` prints; a notebook shows it as HTML."""

    def __init__(self, run: Run):
        self._run = run

    def __repr__(self) -> str:
        file = io.StringIO()
        is_terminal = sys.stdout.isatty()  # of any other output, lines may be as long as the table
        width = get_terminal_size().columns
        console = Console(
            file=file, width=width, force_terminal=is_terminal, color_system=None, highlight=False
        )
        print_runs([self._run], console)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())

    def _repr_html_(self) -> str:
        run = self._run
        is_averaged = any(len(block.parts) > 1 for block in run.blocks)
        return TEMPLATE.render(results=results_table([run]), notes=run.notes, is_averaged=is_averaged)
