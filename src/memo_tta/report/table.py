"""Results as a table on the terminal."""

from collections.abc import Sequence

from rich.table import Table

from memo_tta.evaluation.summary import Summary


def summary_table(rows: Sequence[Summary]) -> Table:
    """One line per data set and method; differences from `source` are green where they help."""
    table = Table("data", "method", "error", "95 % interval", "against source", "per point", box=None)
    source = {row.dataset: row.error for row in rows if row.method == "source"}
    shown = None
    for row in rows:
        change = row.error - source.get(row.dataset, row.error)
        colour = "green" if change < 0 else "red" if change > 0 else "dim"
        difference = "" if row.method == "source" else f"[{colour}]{100 * change:+.1f}[/]"
        table.add_row(
            row.dataset if row.dataset != shown else "",
            row.method,
            f"{row.error:.1%}",
            f"{row.low:.1%} .. {row.high:.1%}",
            difference,
            f"{1000 * row.seconds:.0f} ms",
        )
        shown = row.dataset
    return table
