"""`memo predict`: classify images, and show the prediction before and after adaptation."""

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

from memo_tta.cli.method_options import adaptation_options, configured_method, method_options
from memo_tta.cli.model_options import ModelChoice, model_options
from memo_tta.errors import InputError
from memo_tta.progress import progress

if TYPE_CHECKING:
    from memo_tta.methods import Method, Prediction
    from memo_tta.models.classifier import Point


@dataclass(frozen=True)
class ImageResult:
    """The prediction for one image, or the reason why there is none."""

    image: str
    prediction: "Prediction | None" = None
    seconds: float = 0.0
    error: str | None = None


@click.command(
    epilog="Example: memo predict cat.png dog.png --model resnet26 --weights resnet26.npz --option n_views=16"
)
@click.argument("images", nargs=-1, required=True)
@model_options()
@adaptation_options
@click.option("--method", help="A name from `memo methods` [default: that of --config, or memo].")
@click.option(
    "--top", default=3, show_default=True, type=click.IntRange(1), help="Classes to list with --json."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per image, one per line.")
@click.pass_context
def predict(
    ctx: click.Context,
    images: Sequence[str],
    model: ModelChoice,
    method: str | None,
    options: Sequence[str],
    config: Path | None,
    seed: int | None,
    top: int,
    as_json: bool,
) -> None:
    """Classify IMAGES, adapting the model to each, and show the prediction before and after.

    An image that cannot be read is reported and does not stop the others; the exit code is then 1.
    """
    from memo_tta.methods import METHODS
    from memo_tta.workers import prepare_process

    method = method or configured_method(config) or "memo"
    entry = METHODS[method]
    prepare_process()
    chosen = method_options(method, list(METHODS), config, options, seed)
    robust = entry(model.load(), **chosen)
    results: list[ImageResult] = []
    with progress("images") as update:
        update(0, len(images))
        for result in _predict_all(robust, images):
            results.append(result)
            update(len(results), len(images))
            if result.error is not None:
                click.echo(f"memo: {result.error}", err=True)
            if as_json:
                click.echo(json.dumps(_as_dict(result, top)))
    failed = sum(result.error is not None for result in results)
    if failed < len(results) and not as_json:
        # Rich assumes 80 columns for pipes and files, which would break long paths.
        Console(width=None if sys.stdout.isatty() else 160).print(_table(results))
    if failed:
        if len(results) > 1:
            click.echo(f"memo: {failed} of {len(results)} images failed", err=True)
        ctx.exit(1)


def _predict_all(robust: "Method[Any]", images: Sequence[str]) -> Iterator[ImageResult]:
    """Yield the results in order, predicting as many images at once as the method takes."""
    for start in range(0, len(images), robust.batch_points):
        names = images[start : start + robust.batch_points]
        points = [_read(robust, name) for name in names]
        readable = [point for point in points if not isinstance(point, InputError)]
        began = perf_counter()
        predictions = iter(robust.predict(readable))
        seconds = (perf_counter() - began) / max(len(readable), 1)
        for name, point in zip(names, points, strict=True):
            if isinstance(point, InputError):
                yield ImageResult(name, error=str(point))
            else:
                yield ImageResult(name, next(predictions), seconds)


def _read(robust: "Method[Any]", name: str) -> "Point | InputError":
    try:
        return robust.classifier.point(name)
    except InputError as error:
        return error


def _as_dict(result: ImageResult, top: int) -> dict[str, Any]:
    prediction = result.prediction
    if prediction is None:
        return {"image": result.image, "error": result.error}
    return {
        "image": result.image,
        **_summary(prediction),
        "top": prediction.top(top),
        "source": {**_summary(prediction.source), "top": prediction.source.top(top)},
        "adapted": prediction.adapted,
        "status": str(prediction.status),
        "reason": prediction.reason,
        "marginal_entropy": prediction.marginal_entropy,
        "shift": prediction.shift,
        "clean_shift": prediction.clean_shift,
        "seconds": round(result.seconds, 6),
    }


def _summary(prediction: "Prediction") -> dict[str, Any]:
    return {
        "label": prediction.label,
        "index": prediction.index,
        "score": prediction.score,
        "entropy": prediction.entropy,
    }


def _table(results: list[ImageResult]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("image", overflow="fold")
    for heading in ("prediction", "confidence", "entropy", "time"):
        table.add_column(heading, no_wrap=True)
    if any(result.prediction and result.prediction.reason for result in results):
        table.add_column("note", overflow="fold", style="dim")
    for result in results:
        if (after := result.prediction) is None:
            continue
        before = after.source
        label = escape(after.label)
        if after.index != before.index:
            label = f"{escape(before.label)} → [bold green]{label}[/]"
        table.add_row(
            escape(result.image),
            label,
            f"{before.score:6.1%} → {after.score:6.1%}",
            f"{before.entropy:.2f} → {after.entropy:.2f}",
            f"{result.seconds:.2f} s",
            *([after.reason] if after.reason else []),
        )
    return table
