"""`memo predict`: images in, labels before and after adaptation out."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from memo_tta.cli.method_options import method_options, model_options
from memo_tta.cli.progress import progress
from memo_tta.errors import InputError

if TYPE_CHECKING:
    from memo_tta.methods import Method, Prediction
    from memo_tta.models.classifier import Point


@dataclass(frozen=True)
class ImageResult:
    """What came of one image: a prediction, or why there is none."""

    image: str
    prediction: "Prediction | None" = None
    seconds: float = 0.0
    error: str | None = None


@click.command(
    epilog="Example: memo predict cat.png dog.png --model resnet26 --weights resnet26.npz --option n_views=16"
)
@click.argument("images", nargs=-1, required=True)
@model_options
@click.option("--method", default="memo", show_default=True, help="A name from `memo methods`.")
@click.option(
    "--top", default=3, show_default=True, type=click.IntRange(1), help="Classes listed with --json."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per image and line.")
@click.pass_context
def predict(
    ctx: click.Context,
    images: Sequence[str],
    model: str,
    weights: Path | None,
    method: str,
    options: Sequence[str],
    config: Path | None,
    seed: int | None,
    top: int,
    as_json: bool,
) -> None:
    """Predict IMAGES, adapting the model to each, and show the prediction before and after.

    An image that cannot be used is reported and does not stop the others; the exit code is then 1.
    """
    from memo_tta.methods import METHODS
    from memo_tta.models.zoo import load

    entry = METHODS[method]
    chosen = method_options(method, list(METHODS), config, options, seed)
    robust = entry(load(model, weights), **chosen)
    answers = []
    with progress("images") as update:
        update(0, len(images))
        for answer in _answers(robust, images):
            answers.append(answer)
            update(len(answers), len(images))
            if answer.error is not None:
                click.echo(f"memo: {answer.error}", err=True)
            if as_json:
                click.echo(json.dumps(_as_dict(answer, top)))
    failed = sum(answer.error is not None for answer in answers)
    if failed < len(answers) and not as_json:
        # A pipe or a file has no width of its own: leave long paths whole.
        Console(width=None if sys.stdout.isatty() else 160).print(_table(answers))
    if failed:
        if len(answers) > 1:
            click.echo(f"memo: {failed} of {len(answers)} images failed", err=True)
        ctx.exit(1)


def _answers(robust: "Method[Any]", images: Sequence[str]) -> Iterator[ImageResult]:
    """In order; as many images go in together as the method takes at once."""
    for start in range(0, len(images), robust.points):
        names = images[start : start + robust.points]
        read = [_read(robust, name) for name in names]
        good = [point for point in read if not isinstance(point, InputError)]
        began = perf_counter()
        predictions = iter(robust.predict(good))
        seconds = (perf_counter() - began) / max(len(good), 1)
        for name, point in zip(names, read, strict=True):
            if isinstance(point, InputError):
                yield ImageResult(name, error=str(point))
            else:
                yield ImageResult(name, next(predictions), seconds)


def _read(robust: "Method[Any]", name: str) -> "Point | InputError":
    try:
        return robust.classifier.point(name)
    except InputError as error:
        return error


def _as_dict(answer: ImageResult, top: int) -> dict[str, Any]:
    prediction = answer.prediction
    if prediction is None:
        return {"image": answer.image, "error": answer.error}
    return {
        "image": answer.image,
        **_summary(prediction),
        "top": prediction.top(top),
        "source": {**_summary(prediction.source), "top": prediction.source.top(top)},
        "adapted": prediction.adapted,
        "status": str(prediction.status),
        "reason": prediction.reason,
        "marginal_entropy": prediction.marginal_entropy,
        "seconds": round(answer.seconds, 6),
    }


def _summary(prediction: "Prediction") -> dict[str, Any]:
    return {
        "label": prediction.label,
        "index": prediction.index,
        "score": prediction.score,
        "entropy": prediction.entropy,
    }


def _table(answers: list[ImageResult]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("image", overflow="fold")
    for heading in ("prediction", "confidence", "entropy", "time"):
        table.add_column(heading, no_wrap=True)
    if any(answer.prediction and answer.prediction.reason for answer in answers):
        table.add_column("note", overflow="fold", style="dim")
    for answer in answers:
        if (after := answer.prediction) is None:
            continue
        before = after.source
        label = escape(after.label)
        if after.index != before.index:
            label = f"{escape(before.label)} → [bold green]{label}[/]"
        table.add_row(
            escape(answer.image),
            label,
            f"{before.score:6.1%} → {after.score:6.1%}",
            f"{before.entropy:.2f} → {after.entropy:.2f}",
            f"{answer.seconds:.2f} s",
            *([after.reason] if after.reason else []),
        )
    return table
