"""`memo report`: show a run as a table, CSV, Parquet, Markdown or HTML page."""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console


@click.command(epilog="Example: memo report runs/weather --html weather.html --csv weather.csv")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--csv", type=click.Path(path_type=Path), help="Write one row per image and method to this file."
)
@click.option("--parquet", type=click.Path(path_type=Path), help="Write the same rows as Parquet.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a self-contained page to this file.")
@click.option(
    "--markdown", type=click.Path(path_type=Path), help="Write the tables as Markdown to this file."
)
@click.option(
    "--salvage",
    metavar="NEW",
    type=click.Path(path_type=Path),
    help="Write the intact rows of one damaged run to this new folder, and show that.",
)
def report(
    runs: Sequence[Path],
    csv: Path | None,
    parquet: Path | None,
    html: Path | None,
    markdown: Path | None,
    salvage: Path | None,
) -> None:
    """Show the results of the `memo evaluate` folders RUNS, one below the other.

    Errors have 95 % confidence intervals. Methods are compared image by image: how many they corrected, how
    many they made wrong, and the exact p-value of McNemar's test. The last line says which method to use: the
    best on shifted images of those that do no harm on clean ones.
    """
    from memo_tta.files import check_output_file
    from memo_tta.report.export import write_csv, write_parquet
    from memo_tta.report.run import open_run
    from memo_tta.report.terminal import print_runs, print_suggestions

    for target in filter(None, (csv, parquet, html, markdown)):
        check_output_file(target)
    if salvage is not None:
        runs = _salvaged(runs, salvage)
    opened = [open_run(folder) for folder in runs]
    console = Console(highlight=False)
    print_runs(opened, console)
    if csv is not None:
        write_csv(runs, csv)
        click.echo(f"wrote {csv}")
    if parquet is not None:
        write_parquet(runs, parquet)
        click.echo(f"wrote {parquet}")
    if html is not None:
        from memo_tta.report.html import run_page

        _write(html, run_page(opened))
    if markdown is not None:
        from memo_tta.report.markdown import report_markdown

        _write(markdown, report_markdown(opened))
    print_suggestions(opened, console)


def _salvaged(runs: Sequence[Path], new: Path) -> Sequence[Path]:
    """Write the intact rows of a damaged run to a new one, and say how many; return the new one."""
    from memo_tta.evaluation.salvage import salvage
    from memo_tta.report.run import open_run

    if len(runs) != 1:
        raise click.UsageError(f"--salvage: expected one damaged run, got {len(runs)} runs")
    salvage(runs[0], new)
    click.echo(f"{new}: {open_run(new).salvaged}")
    return [new]


def _write(path: Path, text: str) -> None:
    from memo_tta.files import atomic_file

    with atomic_file(path) as temporary:
        # A path of the run may hold bytes that are not text.
        temporary.write_text(text, "utf-8", "backslashreplace")
    click.echo(f"wrote {path}")
