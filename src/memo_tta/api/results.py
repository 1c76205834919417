"""What `evaluate` returns: errors with intervals, comparisons image by image, and every record."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from memo_tta.api.comparisons import Comparisons, compare_methods
from memo_tta.api.table import FormattedTable
from memo_tta.errors import MissingExtra
from memo_tta.evaluation.records import FailedRecord, SkippedPoint
from memo_tta.evaluation.store import open_for_reading
from memo_tta.files import atomic_file, check_output_file
from memo_tta.report import formatting
from memo_tta.report.export import FIELDS, TYPES, write_csv
from memo_tta.report.html import run_page
from memo_tta.report.run import open_run


class Results:
    """The results of `evaluate`, or of the folder that `memo evaluate` has written."""

    def __init__(self, folder: str | PathLike[str]):
        self.folder = Path(folder)
        self._run = open_run(self.folder)

    @property
    def failed(self) -> Sequence[FailedRecord]:
        """The predictions that could not be computed, with the reason."""
        return self._run.failed_records

    @property
    def skipped(self) -> Sequence[SkippedPoint]:
        """The images that could not be read, with the reason."""
        return self._run.skipped

    def table(self) -> FormattedTable:
        """Return the table of errors, changes to source and times: text when printed, HTML in a notebook."""
        return FormattedTable(self._run)

    def compare(self, method: str, baseline: str) -> Comparisons:
        """Compare two methods image by image: one comparison for each data set, clean and corrupted."""
        return compare_methods(self._run, method, baseline)

    def to_pandas(self) -> Any:
        """Return a data frame of one row per image and method, with the columns of `to_csv`."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("pandas is not installed: pip install pandas") from None
        with open_for_reading(self.folder) as store:
            rows = [[getattr(record, FIELDS.get(name, name)) for name in TYPES] for record in store.records()]
        numbers: Any = {name: kind for name, kind in TYPES.items() if kind != "string"}
        return pandas.DataFrame(rows, columns=pandas.Index(TYPES)).astype(numbers)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write one row per image and method, as `memo report --csv` does."""
        check_output_file(Path(path))
        write_csv([self.folder], Path(path))

    def report(self, path: str | PathLike[str]) -> None:
        """Write a self-contained HTML page with tables and plots, as `memo report --html` does."""
        check_output_file(Path(path))
        page = run_page([self._run])
        with atomic_file(Path(path)) as temporary:
            # A path of the run may hold bytes that are not text.
            temporary.write_text(page, "utf-8", "backslashreplace")

    def __repr__(self) -> str:
        run = self._run
        lines = [
            f"{run.name(block)}, {formatting.extent(block)}: "
            + ", ".join(f"{row.method} {formatting.percent(row.error)} %" for row in rows)
            for block, rows in run.tables
        ]
        text = "\n        ".join(f"{line} wrong" for line in lines)
        counts = {"failed": len(self.failed), "skipped": len(self.skipped)}
        left_out = [f"{count} {what}" for what, count in counts.items() if count]
        return f"Results({'; '.join([text, *left_out])})"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
