"""Describe a classifier: its size, its input, its labels, and which methods can be used with it."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memo_tta.errors import MemoError, MemoWarning

if TYPE_CHECKING:
    from memo_tta.models.classifier import Classifier

SHOWN_LABELS = 5


def describe(classifier: "Classifier") -> Iterator[tuple[str, str]]:
    """Yield the names and values of what a table shows about a classifier."""
    from memo_tta.models.batch_norm import norm_layers, statistics_layers

    parameters = [p for p in classifier.module.parameters() if p.is_floating_point()]
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    total = sum(p.numel() for p in parameters)
    yield "module", classifier.name
    yield "parameters", f"{total:,}" + ("" if trainable == total else f", {trainable:,} of them trainable")
    norms, running = len(norm_layers(classifier.module)), len(statistics_layers(classifier.module))
    yield "norm layers", f"{norms}, {running} with running statistics"
    yield from _describe_input(classifier)
    yield "labels", _describe_labels(classifier.labels)


def _describe_input(classifier: "Classifier") -> Iterator[tuple[str, str]]:
    preprocessing = classifier.preprocessing
    if preprocessing is None:
        yield "input", "tensors, as they are"
        return
    channels, height, width = preprocessing.shape
    yield "input", f"{width} x {height} pixels, {channels} channel{'s' if channels > 1 else ''}"
    for name in ("resize", "interpolation", "mean", "std"):
        yield name, str(getattr(preprocessing, name))


def _describe_labels(labels: tuple[str, ...] | None) -> str:
    if labels is None:
        return "none: predictions are indices"
    rest = f" and {len(labels) - SHOWN_LABELS:,} more" if len(labels) > SHOWN_LABELS else ""
    return f"{len(labels):,}: {', '.join(labels[:SHOWN_LABELS])}{rest}"


def usable_methods(classifier: "Classifier") -> Iterator[tuple[str, str]]:
    """Yield every method with "yes", or with the reason why it cannot be used or has no effect."""
    from memo_tta.methods import METHODS

    for name, entry in METHODS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", MemoWarning)
                entry(classifier)
        except (MemoError, MemoWarning) as problem:
            yield f"method {name}", f"no: {problem}"
        else:
            yield f"method {name}", "yes"
