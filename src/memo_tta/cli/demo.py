"""`memo demo`: a bundled model on the bundled images, as a table, a page and pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from memo_tta.progress import progress

if TYPE_CHECKING:
    from memo_tta.data.dataset import Dataset
    from memo_tta.evaluation.changed_points import ChangedPoint
    from memo_tta.evaluation.records import Record
    from memo_tta.evaluation.results import ResultBlock
    from memo_tta.models.classifier import Classifier
    from memo_tta.report.view_panel import Figure

IMAGES = 100  # per shift: less than a minute on two cores
METHODS = ("source", "memo", "restore")
MODELS = ("resnet26", "resnet20-bn", "cct2")
TITLE = "One model, one image at a time"
INTRODUCTION = (
    "A small network ({model}), trained on clean CIFAR-10 images, classifies clean, noisy, blurred and "
    "low-contrast ones."
)
CLEAN = "clean"
ALL_SHIFTS = "shifted"  # all of them together, in the table


@click.command(epilog="Example: memo demo --model cct2 --out demo")
@click.option(
    "--model",
    default="resnet26",
    show_default=True,
    type=click.Choice(MODELS),
    help="A bundled network: with group norm, batch norm or layer norm.",
)
@click.option("--weights", type=click.Path(path_type=Path), help="Use these weights of the model.")
@click.option("--out", default=Path("demo"), type=click.Path(path_type=Path), help="Folder for the page.")
@click.option(
    "--points",
    default=IMAGES,
    show_default=True,
    type=click.IntRange(1, 500),
    help="Number of images per shift.",
)
def demo(model: str, weights: Path | None, out: Path, points: int) -> None:
    """Compare source, memo and restore on clean, noisy, blurred and low-contrast CIFAR-10 images.

    Prints a table and what it suggests, and writes a page with pictures of single images and their views.
    """
    from memo_tta.data.dataset import balanced
    from memo_tta.data.sample_images import SHIFTS, load_sample, shifted
    from memo_tta.evaluation.comparison import method_results
    from memo_tta.evaluation.recommendation import MethodLimits, recommend
    from memo_tta.evaluation.results import collect
    from memo_tta.files import atomic_file
    from memo_tta.models.zoo import ZOO, load
    from memo_tta.report.html import summary_page
    from memo_tta.report.suggestion import sentence
    from memo_tta.report.terminal import summary_table
    from memo_tta.workers import prepare_process

    prepare_process()
    classifier = load(model, weights)
    sample = balanced(load_sample(), points)
    datasets = {shift: shifted(sample, shift) for shift in SHIFTS}
    records = _evaluate(classifier, datasets)
    (together,) = collect(
        replace(record, dataset=ALL_SHIFTS, corruption=record.dataset, severity=1)
        for record in records
        if record.dataset != CLEAN
    )
    clean, *blocks = collect(records)
    tables = [(block, method_results(block)) for block in (clean, together, *blocks)]
    suggestion = sentence(recommend(together, clean, MethodLimits()))
    console = Console()
    console.print(summary_table(tables))
    console.print(f"\n{suggestion}", highlight=False, soft_wrap=True)
    figures = _draw_examples(classifier, datasets, [clean, *blocks])
    for number, figure in enumerate(figures, start=1):
        with atomic_file(out / f"views-{number}.png") as part:
            figure.picture.save(part, "PNG")
    made_by = f"{points} images per shift, seed 0. Made by: memo demo --model {model} --points {points}"
    introduction = INTRODUCTION.format(model=ZOO[model].about)
    with atomic_file(out / "index.html") as part:
        part.write_text(summary_page(TITLE, introduction, suggestion, tables, figures, made_by), "utf-8")
    console.print(
        f"\nWrote {out / 'index.html'} and {len(figures)} pictures beside it. Try next:", soft_wrap=True
    )
    for line in (
        f"memo predict YOUR.png --model {model}" + (f" --weights {weights}" if weights else ""),
        f"memo serve --model {model} --method restore",
        f"memo advise YOUR_PHOTOS --model {model} --out memo.toml",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)


def _evaluate(classifier: "Classifier", datasets: "Mapping[str, Dataset]") -> "list[Record]":
    """Run all methods on all data sets, showing the progress."""
    from memo_tta.evaluation.records import Record
    from memo_tta.evaluation.runner import run
    from memo_tta.methods import METHODS as TABLE

    methods = {name: TABLE[name](classifier) for name in METHODS}
    images = sum(map(len, datasets.values()))
    records: list[Record] = []
    with progress("images") as update:
        for data in datasets.values():
            for record in run(data, methods):
                assert isinstance(record, Record)  # the bundled images can all be read
                records.append(record)
                update(len(records) // len(methods), images)
    return records


def _draw_examples(
    classifier: "Classifier", datasets: "Mapping[str, Dataset]", blocks: "Sequence[ResultBlock]"
) -> "list[Figure]":
    from memo_tta.methods import METHODS as TABLE
    from memo_tta.report.view_panel import Figure, point_panel

    figures: list[Figure] = []
    for method in METHODS[1:]:
        robust = TABLE[method](classifier)
        for verdict, shift, point in choose_examples(blocks, method):
            data = datasets[shift]
            label = data.labels[point.target]
            panel = point_panel(robust, data, point.position, label)
            figures.append(Figure(panel, f"{shift}, {verdict} by {method} (true class: {label})"))
    return figures


def choose_examples(blocks: "Sequence[ResultBlock]", method: str) -> "list[tuple[str, str, ChangedPoint]]":
    """Return (verdict, shift, point) of the first point helped under each shift and the first one hurt."""
    from memo_tta.evaluation.changed_points import changed_points

    changes = {block.dataset: changed_points(block, method, "source") for block in blocks}
    helped = [("corrected", shift, changes[shift][0][0]) for shift in sorted(changes) if changes[shift][0]]
    hurt = [("made wrong", shift, point) for shift, (_, points) in changes.items() for point in points]
    return helped + hurt[:1]
