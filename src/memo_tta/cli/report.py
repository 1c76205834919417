"""`memo report`: a run as table, CSV, Parquet and one HTML page."""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console


@click.command(epilog="Example: memo report runs/weather --html weather.html --csv weather.csv")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--csv", type=click.Path(path_type=Path), help="Write a row per point and method here.")
@click.option("--parquet", type=click.Path(path_type=Path), help="The same as a Parquet file.")
@click.option("--html", type=click.Path(path_type=Path), help="Write one self-contained page here.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the tables as Markdown here.")
def report(
    runs: Sequence[Path], csv: Path | None, parquet: Path | None, html: Path | None, markdown: Path | None
) -> None:
    """Show what the methods did in the folders RUNS of `memo evaluate`.

    Errors come with their 95 % interval, differences are point by point: helped, hurt, and McNemar's
    exact p. Several runs stand one below the other.
    """
    from memo_tta.report.export import write_csv, write_parquet
    from memo_tta.report.run import open_run
    from memo_tta.report.terminal import print_runs

    opened = [open_run(folder) for folder in runs]
    print_runs(opened, Console(highlight=False))
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
        from memo_tta.report.markdown import run_markdown

        _write(markdown, "\n".join(map(run_markdown, opened)))


def _write(file: Path, text: str) -> None:
    from memo_tta.files import atomic_file

    with atomic_file(file) as part:
        part.write_text(text, "utf-8")
    click.echo(f"wrote {file}")
