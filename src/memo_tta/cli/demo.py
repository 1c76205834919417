"""`memo demo`: ResNet-26 on the embedded images, as a table, a page and pictures."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from memo_tta.cli.progress import progress

if TYPE_CHECKING:
    from memo_tta.data.dataset import Dataset
    from memo_tta.evaluation.records import Record
    from memo_tta.methods import Memo
    from memo_tta.report.html import Figure

POINTS = 50  # images per shift: about a minute on two cores
METHODS = ("source", "tta", "memo")


@click.command(epilog="Example: memo demo --out demo")
@click.option("--weights", type=click.Path(path_type=Path), help="Weights of ResNet-26 of your own.")
@click.option("--out", default=Path("demo"), type=click.Path(path_type=Path), help="Folder of the page.")
@click.option("--points", default=POINTS, show_default=True, type=click.IntRange(1, 500))
def demo(weights: Path | None, out: Path, points: int) -> None:
    """See it work: source, tta and memo on clean, noisy, blurred and low-contrast CIFAR-10 images.

    Prints a table, and writes a page and pictures of views with the model's answers before and after.
    """
    from memo_tta.data.dataset import balanced
    from memo_tta.data.sample_images import SHIFTS, load_sample, shifted
    from memo_tta.evaluation.records import Record
    from memo_tta.evaluation.runner import run
    from memo_tta.evaluation.summary import summarise
    from memo_tta.files import atomic_file
    from memo_tta.methods import METHODS as TABLE
    from memo_tta.methods import Memo
    from memo_tta.models.zoo import load
    from memo_tta.report.html import demo_page
    from memo_tta.report.table import summary_table

    classifier = load("resnet26", weights)
    methods = {name: TABLE[name](classifier) for name in METHODS}
    sample = balanced(load_sample(), points)
    sets = [shifted(sample, name) for name in SHIFTS]
    records: list[Record] = []
    with progress("images") as update:
        for images in sets:
            for record in run(images, methods):
                assert isinstance(record, Record)  # arrays cannot be unreadable
                records.append(record)
                update(len(records) // len(methods), len(sets) * points)
    rows = summarise(records)
    console = Console()
    console.print(summary_table(rows))
    robust = Memo(classifier)
    by_name = {images.name: images for images in sets}
    figures = [_figure(robust, by_name[r.dataset], r, verdict) for verdict, r in _telling(records)]
    for index, figure in enumerate(figures):
        with atomic_file(out / f"views-{index + 1}.png") as part:
            figure.picture.save(part, "PNG")
    facts = f"{points} images per row, seed 0. Made by: memo demo --points {points}"
    with atomic_file(out / "index.html") as part:
        part.write_text(demo_page(rows, figures, facts), "utf-8")
    done = f"\nThe page: {out / 'index.html'}, with {len(figures)} pictures beside it. Try next:"
    console.print(done, soft_wrap=True)
    for line in (
        "memo predict YOUR.png --model resnet26" + (f" --weights {weights}" if weights else ""),
        "memo methods memo",
        "memo bench --only adaptation",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)


def _telling(records: "list[Record]") -> "list[tuple[str, Record]]":
    """The first point of each shift that memo set right, and the first of all that it made wrong."""
    source = {(r.dataset, r.position): r for r in records if r.method == "source"}
    memo = [r for r in records if r.method == "memo"]
    helped = {r.dataset: r for r in reversed(memo) if r.right and not source[r.dataset, r.position].right}
    hurt = [r for r in memo if not r.right and source[r.dataset, r.position].right]
    chosen = [("set right", helped[name]) for name in sorted(helped)]
    return chosen + [("made wrong", r) for r in hurt[:1]]


def _figure(robust: "Memo", images: "Dataset", record: "Record", verdict: str) -> "Figure":
    from memo_tta.report.examples import explained
    from memo_tta.report.html import Figure

    truth = images.labels[record.target]
    picture = explained(robust, images, record.position, truth)
    return Figure(picture, f"{images.name}, {verdict} (true class: {truth})")
