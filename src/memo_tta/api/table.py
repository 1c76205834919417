"""The table of results as text for a terminal, and as HTML for a notebook."""

import io
import sys
from collections.abc import Sequence
from shutil import get_terminal_size

from jinja2 import ChoiceLoader, PackageLoader
from rich.console import Console

from memo_tta.report.html import TEMPLATES
from memo_tta.report.html_tables import Table, results_table
from memo_tta.report.run import Run
from memo_tta.report.terminal import print_runs

NOTEBOOK_TEMPLATES = TEMPLATES.overlay(
    loader=ChoiceLoader([PackageLoader("memo_tta.api"), PackageLoader("memo_tta.report")])
)


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
        return notebook_html("results", results_table([run]), run.notes, is_averaged=is_averaged)


def notebook_html(kind: str, rows: Table, notes: Sequence[str], **values: object) -> str:
    """Return a table and sentences below it as part of a notebook."""
    return NOTEBOOK_TEMPLATES.get_template(f"notebook_{kind}.html").render(rows=rows, notes=notes, **values)
