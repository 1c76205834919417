"""Which entries run on unmodified models, and what they leave behind: python -m studies.peers.checks --help.

Prints JSON.
"""

import io
import json
import math
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import click
import torch
from torch import Tensor, nn

import memo_tta as mt
from memo_tta.models.classifier import Classifier
from studies.peers.entries import ENTRIES, Predict

SIZES = (1, 16)  # images given at once
CLEAN = range(400, 500)  # bundled images for engines that need some from the source; never evaluated


def describe(error: Exception) -> str:
    """Return an error as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def snapshot(module: nn.Module) -> dict[str, dict[str, Any]]:
    """Return copies of what a method must not change."""
    return {
        "weights": {name: value.clone() for name, value in module.state_dict().items()},
        "modes": {name: part.training for name, part in module.named_modules()},
        "gradient flags": {name: value.requires_grad for name, value in module.named_parameters()},
    }


def changed(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    """Return which kinds of state differ, bit for bit."""

    def differ(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return a.keys() != b.keys() or any(not _equal(value, b[name]) for name, value in a.items())

    return [kind for kind in before if differ(before[kind], after[kind])]


def _equal(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


def check(module: nn.Module, build: Callable[[], Predict], x: Tensor) -> dict[str, Any]:
    """Return whether the entry runs on inputs, repeats its answers, and leaves the module as it was."""
    module.eval()
    before, answer = snapshot(module), _answer(module, x)
    result: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            predict = build()
            first, loss = predict(x), getattr(predict, "loss", None)
            finite = bool(first.isfinite().all())
            result |= {"finite": finite, "repeats": torch.equal(first, predict(x))}
            result["loss"] = loss if loss is None or math.isfinite(loss) else "nan"
            result["no_grad"] = _without_gradients(predict, x)
        except Exception as error:
            result["error"] = describe(error)
    result["printed"] = len(printed.getvalue().splitlines())
    result["changed"] = changed(before, snapshot(module))
    result["answers"] = _same(answer, _answer(module, x))
    return result


def _answer(module: nn.Module, x: Tensor) -> Tensor | str:
    try:
        with torch.no_grad():
            return module(x)
    except Exception as error:
        return describe(error)


def _same(before: Tensor | str, after: Tensor | str) -> bool | str:
    """Return whether two answers are equal bit for bit, or the error that came instead of the second."""
    if isinstance(before, str) or isinstance(after, str):
        return after if isinstance(after, str) else False
    return torch.equal(before, after)


def _without_gradients(predict: Predict, x: Tensor) -> str | None:
    """Return the error that comes under torch.no_grad(), as code that serves models calls them."""
    try:
        with torch.no_grad():
            predict(x)
    except Exception as error:
        return describe(error)
    return None


def inputs(classifier: Classifier, positions: range) -> Tensor:
    """Return bundled images as the model takes them."""
    images = mt.load_dataset("sample").images
    return torch.stack([classifier.point(images[position]).x for position in positions])


def clean_inputs(classifier: Classifier) -> Tensor:
    """Return the clean images for engines that need some from the source."""
    return inputs(classifier, CLEAN)


@click.command(help=__doc__)
@click.argument("model")
def main(model: str) -> None:
    torch.set_num_threads(1)
    results: dict[str, dict[int, Any]] = {name: {} for name in ENTRIES}
    for name, entry in ENTRIES.items():
        for size in SIZES:
            classifier = mt.load(model)
            build = partial(entry.build, classifier, clean_inputs(classifier))
            results[name][size] = check(classifier.module, build, inputs(classifier, range(size)))
    click.echo(json.dumps(results))


if __name__ == "__main__":
    main()
